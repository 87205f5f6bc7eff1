-- commit.lua: one service's atomic write. Phase 1 checks everything and only builds a plan of commands;
-- phase 2 runs the plan, whose commands can no longer fail.
--
-- KEYS[1] meta hash   KEYS[2] log stream
-- ARGV[1] header: MessagePack map built by shared/store/wire.py   ARGV[2..] payloads, named by index in the header
-- Other keys stand in the header; they share KEYS' hash tag.
-- Reply: {'ok', first revision, count} | {'dup', first revision, count, answer} | {'err', code, name, value, ...}
-- An inbox value is "<first revision> <count> <answer>"; a log entry names the revision of the one before it, so that
-- whoever follows the log sees a hole.

local meta, log = KEYS[1], KEYS[2]
local h = cmsgpack.unpack(ARGV[1])
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])

local MAX_EXACT = 9007199254740992 -- 2^53: beyond it Lua's numbers skip integers
local MAX_DOCUMENTS = 200
local MAX_PAYLOAD = 8388608
local BUCKET_US, BUCKETS, BUCKET_TTL = 300000000, 3, 900
local SLOT_TTL = 3600
local ENTRY_OVERHEAD = 256
local WANT = {HSET = 'hash', HDEL = 'hash', ZADD = 'zset', ZREM = 'zset', XADD = 'stream', XTRIM = 'stream', DEL = 'hash', EXPIRE = 'hash'}

local plan, types, granted, seen = {}, {}, {}, {}
local first, given = 0, 0 -- the first revision of this commit and how many it takes
local logged_last = '0' -- the revision of the log's last entry
local keep_from, keep_count = 0, 1 -- what of the log stays

local function num(x) return string.format('%.0f', x) end

local function refuse(code, ...) error({'err', code, ...}, 0) end

local function typed(key, want)
  if type(key) ~= 'string' then refuse('malformed', 'detail', 'a key is not a string') end
  local have = types[key]
  if not have then
    have = redis.call('TYPE', key).ok
    types[key] = have
  end
  if have ~= 'none' and have ~= want then refuse('type', 'key', key, 'have', have, 'want', want) end
end

local function allowed(command, key)
  typed(key, WANT[command])
  local mark = command .. ' ' .. key
  if granted[mark] == nil then
    if command == 'DEL' then granted[mark] = redis.acl_check_cmd(command, key)
    else granted[mark] = redis.acl_check_cmd(command, key, 'a', 'b') end
  end
  if not granted[mark] then refuse('denied', 'key', key, 'command', command) end
end

local function add(command, key, ...)
  allowed(command, key)
  local step = {command, key, ...}
  for i = 1, select('#', ...) + 2 do
    local kind = type(step[i])
    if kind ~= 'string' and kind ~= 'number' then refuse('malformed', 'detail', 'an argument of ' .. command .. ' is missing') end
  end
  plan[#plan + 1] = step
end

local function payload(position)
  local text = ARGV[position]
  if position < 2 or text == nil then refuse('malformed', 'detail', 'payload missing') end
  if #text > MAX_PAYLOAD then refuse('malformed', 'detail', 'payload too large') end
  return text
end

local function integer(text, key, field)
  if not string.match(text, '^-?%d+$') then refuse('type', 'key', key, 'field', field, 'have', 'text', 'want', 'integer') end
  local value = tonumber(text)
  if value >= MAX_EXACT or value <= -MAX_EXACT then refuse('bound', 'key', key, 'field', field, 'value', text) end
  return value
end

-- A commit whose answer was lost is sent again with the same id: its first result is still in the slot.
local function repeated()
  typed(h.slot[1], 'hash')
  local kept = redis.call('HGET', h.slot[1], h.slot[2])
  if not kept then return nil end
  local id, at, count = string.match(kept, '^(%S+) (%S+) (%S+)$')
  if id ~= h.slot[3] then return nil end
  return {'ok', at, count}
end

local function check_epoch()
  typed(meta, 'hash')
  local kept = redis.call('HMGET', meta, 'epoch', 'revision', 'logged')
  logged_last = kept[3] or '0'
  if not kept[1] or kept[1] ~= h.epoch then refuse('epoch', 'epoch', kept[1] or '') end
  if not kept[2] or not string.match(kept[2], '^%d+$') then refuse('epoch', 'epoch', '') end
  first = math.max(tonumber(kept[2]) + 1, now)
  local documents = #h.puts + #h.deletes
  if documents > MAX_DOCUMENTS then refuse('malformed', 'detail', 'too many documents') end
  given = documents
  if documents == 0 and #h.out > 0 then given = 1 end
  if first + given >= MAX_EXACT then refuse('bound', 'key', meta, 'field', 'revision', 'value', kept[2]) end
end

local function marked()
  if not h.mark then return nil end
  local bucket = math.floor(now / BUCKET_US)
  for back = 0, BUCKETS - 1 do
    local key = h.mark[1] .. num(bucket - back)
    typed(key, 'hash')
    local answer = redis.call('HGET', key, h.mark[2])
    if answer then
      local at, count, text = string.match(answer, '^(%S+) (%S+) (.*)$')
      return {'dup', at or '0', count or '0', text or ''}
    end
  end
  return nil
end

local function check_lease()
  if not h.lease then return end
  typed(h.lease[1], 'hash')
  local kept = redis.call('HMGET', h.lease[1], 'nonce', 'fencing', 'expires', 'epoch')
  local mine = kept[1] == h.lease[2] and kept[2] == h.lease[3] and kept[4] == h.epoch
  if not mine or (tonumber(kept[3]) or 0) <= now then refuse('lease', 'key', h.lease[1], 'fencing', kept[2] or '') end
end

local function check_requires()
  for _, r in ipairs(h.requires) do
    typed(r[2], 'hash')
    if r[1] == 'equals' then
      local value = redis.call('HGET', r[2], r[3])
      if value ~= r[4] then refuse('equals', 'key', r[2], 'field', r[3], 'value', value or '') end
    else
      local rev = redis.call('HGET', r[2], 'rev')
      if r[1] == 'exists' and not rev then refuse('missing', 'key', r[2]) end
      if r[1] == 'revision' and (not rev or tonumber(rev) ~= r[3]) then refuse('raced', 'key', r[2], 'revision', rev or '') end
    end
  end
end

local function once(key)
  if seen[key] then refuse('malformed', 'detail', 'twice in one commit: ' .. key) end
  seen[key] = true
end

-- ANY is -2, "must not exist" is -1.
local function expected(key, expect, rev)
  if expect == -1 and rev then refuse('exists', 'key', key, 'revision', rev) end
  if expect >= 0 and (not rev or tonumber(rev) ~= expect) then refuse('raced', 'key', key, 'revision', rev or '') end
end

local function logged(rev, d, uid, change, schema, body, labels)
  add('XADD', log, num(rev) .. '-0', 'kind', d.kind, 'namespace', d.namespace, 'name', d.name, 'uid', uid,
      'type', change, 'schema', schema, 'prev', logged_last, 'labels', labels, 'body', body)
  logged_last = num(rev)
end

local function plan_put(p, rev)
  once(p.key)
  typed(p.key, 'hash')
  local kept = redis.call('HMGET', p.key, 'rev', 'schema', 'labels')
  expected(p.key, p.expect, kept[1])
  if kept[2] and integer(kept[2], p.key, 'schema') > p.schema then refuse('schema', 'key', p.key, 'schema', kept[2]) end
  local body, schema = payload(p.body), num(p.schema)
  add('HSET', p.key, 'rev', num(rev), 'uid', p.uid, 'schema', schema, 'kind', p.kind, 'namespace', p.namespace,
      'name', p.name, 'labels', p.labels, 'body', body)
  if not kept[1] then add('ZADD', p.index, '0', p.member) end
  logged(rev, p, p.uid, kept[1] and 'MODIFIED' or 'ADDED', schema, body, kept[3] or '')
end

local function plan_delete(d, rev)
  once(d.key)
  typed(d.key, 'hash')
  local kept = redis.call('HMGET', d.key, 'rev', 'uid', 'schema', 'labels', 'body')
  if d.expect < 0 and not kept[1] then refuse('missing', 'key', d.key) end
  expected(d.key, d.expect, kept[1])
  if not kept[2] or not kept[3] or not kept[5] then refuse('type', 'key', d.key, 'have', 'hash', 'want', 'document') end
  add('DEL', d.key)
  add('ZREM', d.index, d.member)
  logged(rev, d, kept[2], 'DELETED', kept[3], kept[5], kept[4] or '')
end

local function plan_documents()
  if given > 0 then add('HSET', meta, 'revision', num(first + given - 1)) end
  if #h.puts + #h.deletes == 0 then return end
  typed(log, 'stream')
  if #redis.call('XRANGE', log, num(first) .. '-0', '+', 'COUNT', 1) > 0 then
    refuse('type', 'key', log, 'have', 'a later entry', 'want', 'none')
  end
  for i, p in ipairs(h.puts) do plan_put(p, first + i - 1) end
  for i, d in ipairs(h.deletes) do plan_delete(d, first + #h.puts + i - 1) end
  add('HSET', meta, 'logged', logged_last)
  allowed('XTRIM', log)
  keep_from, keep_count = now - h.log[1], math.max(h.log[2], 1)
end

local function plan_counters()
  local sums, order = {}, {}
  for _, c in ipairs(h.counters) do
    local key, field, delta, floor, ceiling = c[1], c[2], c[3], c[4], c[5]
    typed(key, 'hash')
    local id = #key .. ':' .. key .. field
    local sum = sums[id]
    if not sum then
      sum = {key = key, field = field, value = integer(redis.call('HGET', key, field) or '0', key, field)}
      sums[id] = sum
      order[#order + 1] = sum
    end
    local value = sum.value + delta
    local low, high = floor and value < floor, ceiling and value > ceiling
    if low or high or value >= MAX_EXACT or value <= -MAX_EXACT then
      refuse('bound', 'key', key, 'field', field, 'value', num(sum.value), 'delta', num(delta))
    end
    sum.value = value
  end
  for _, sum in ipairs(order) do add('HSET', sum.key, sum.field, num(sum.value)) end
  for _, a in ipairs(h.assigns) do
    if sums[#a[1] .. ':' .. a[1] .. a[2]] then refuse('malformed', 'detail', 'counted and assigned: ' .. a[2]) end
    if a[3] == 0 then add('HDEL', a[1], a[2]) else add('HSET', a[1], a[2], payload(a[3])) end
  end
end

local function plan_outbox()
  if #h.out == 0 then return end
  local stream, account = h.outbox[1], h.outbox[2]
  typed(account, 'hash')
  typed(stream, 'stream')
  local kept = redis.call('HMGET', account, 'bytes', 'entries', 'acked_bytes', 'acked_entries')
  for i = 1, 4 do kept[i] = integer(kept[i] or '0', account, 'bytes') end
  local bytes, entries = kept[1], kept[2]
  local last = first + given - 1
  if #redis.call('XRANGE', stream, num(last) .. '-0', '+', 'COUNT', 1) > 0 then
    refuse('type', 'key', stream, 'have', 'a later entry', 'want', 'none')
  end
  for i, m in ipairs(h.out) do
    local data = payload(m.data)
    local rev = last
    if m.document > 0 then
      if m.document > given then refuse('malformed', 'detail', 'a message names no document of the commit') end
      rev = first + m.document - 1
    end
    bytes = bytes + #data + #m.type + #m.subject + ENTRY_OVERHEAD
    entries = entries + 1
    add('XADD', stream, num(last) .. '-' .. i, 'type', m.type, 'subject', m.subject, 'about', m.about, 'data', data,
        'correlation', m.correlation ~= '' and m.correlation or h.cause[1], 'causation', h.cause[2], 'traceparent', h.cause[3], 'rev', num(rev),
        'epoch', h.epoch, 'time', num(now), 'bytes', num(bytes), 'entries', num(entries))
  end
  local limit = h.outbox[3]
  if not h.release then limit = limit * 0.8 end -- the last fifth is for releases and deletes
  if bytes - kept[3] > limit then refuse('outbox', 'key', stream, 'bytes', num(kept[1] - kept[3]), 'limit', num(limit)) end
  add('HSET', account, 'bytes', num(bytes), 'entries', num(entries))
end

local function plan_marks()
  if h.mark then
    local key = h.mark[1] .. num(math.floor(now / BUCKET_US))
    local answer = h.mark[3] > 0 and payload(h.mark[3]) or ''
    add('HSET', key, h.mark[2], num(first) .. ' ' .. given .. ' ' .. answer)
    add('EXPIRE', key, BUCKET_TTL)
  end
  add('HSET', h.slot[1], h.slot[2], h.slot[3] .. ' ' .. num(first) .. ' ' .. given)
  if redis.call('TTL', h.slot[1]) < SLOT_TTL / 2 then add('EXPIRE', h.slot[1], SLOT_TTL) end
end

local function prepare()
  local kept = repeated()
  if kept then return kept end
  check_epoch()
  kept = marked()
  if kept then return kept end
  if h.deadline > 0 and now > h.deadline then refuse('deadline', 'now', num(now)) end
  check_lease()
  check_requires()
  -- The server refuses growth only before a script's first write; a release starts with one that frees.
  if h.release then add('HDEL', meta, '-') end
  plan_documents()
  plan_counters()
  plan_outbox()
  plan_marks()
  return nil
end

local function trim_log()
  if redis.call('XTRIM', log, 'MINID', num(keep_from)) > 0 then redis.call('HSET', meta, 'log_floor', num(keep_from - 1)) end
  if redis.call('XLEN', log) > keep_count then
    redis.call('XTRIM', log, 'MAXLEN', keep_count)
    local id = redis.call('XRANGE', log, '-', '+', 'COUNT', 1)[1][1]
    redis.call('HSET', meta, 'log_floor', num(tonumber(string.match(id, '^%d+')) - 1))
  end
end

local checked, outcome = pcall(prepare)
if not checked then
  if type(outcome) == 'table' and outcome[1] == 'err' then return outcome end
  return {'err', 'internal', 'detail', tostring(type(outcome) == 'table' and outcome.err or outcome)}
end
if outcome then return outcome end

-- Phase 2. Out of memory, a full disk, too few replicas or a demotion show at the first command, before any change.
local begun = redis.pcall(unpack(plan[1]))
if type(begun) == 'table' and begun.err then return {'err', 'server', 'detail', begun.err} end
for i = 2, #plan do redis.call(unpack(plan[i])) end
if #h.puts + #h.deletes > 0 then trim_log() end
return {'ok', num(first), num(given)}
