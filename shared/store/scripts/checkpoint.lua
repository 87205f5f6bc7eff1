-- checkpoint.lua: the relay says up to which outbox entry the bus has acknowledged, or that it must go back.
--
-- KEYS[1] meta hash   KEYS[2] outbox stream   KEYS[3] account hash   KEYS[4] checkpoints sorted set   KEYS[5] lease hash
-- ARGV[1] epoch   ARGV[2] lease nonce   ARGV[3] lease fencing   ARGV[4] entry id   ARGV[5] stream creation time
-- ARGV[6] stream sequence   ARGV[7] ack | rewind   ARGV[8] how long acknowledged entries stay (microseconds)
-- ARGV[9] least time between two kept checkpoints (microseconds)
-- Reply: {'ok', entries waiting, bytes waiting} | {'err', code, name, value, ...}

local meta, stream, account, marks, lease = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local entry, created, sequence, action = ARGV[4], ARGV[5], ARGV[6], ARGV[7]

local function num(x) return string.format('%.0f', x) end

local function typed(key, want)
  local have = redis.call('TYPE', key).ok
  return have ~= 'none' and have ~= want and {'err', 'type', 'key', key, 'have', have, 'want', want}
end

local function field(values, name)
  for i = 1, #values, 2 do
    if values[i] == name then return values[i + 1] end
  end
  return nil
end

local problem = typed(meta, 'hash') or typed(stream, 'stream') or typed(account, 'hash') or typed(marks, 'zset') or typed(lease, 'hash')
if problem then return problem end
for _, key in ipairs({stream, account, marks}) do
  if not redis.acl_check_cmd('DEL', key) then return {'err', 'denied', 'key', key, 'command', 'DEL'} end
end
local epoch = redis.call('HGET', meta, 'epoch')
if epoch ~= ARGV[1] then return {'err', 'epoch', 'epoch', epoch or ''} end
local held = redis.call('HMGET', lease, 'nonce', 'fencing', 'expires', 'epoch')
if held[1] ~= ARGV[2] or held[2] ~= ARGV[3] or held[4] ~= epoch or (tonumber(held[3]) or 0) <= now then
  return {'err', 'lease', 'key', lease, 'fencing', held[2] or ''}
end

local bytes, entries = '0', '0' -- "before the first entry" has acknowledged nothing
if entry ~= '0-0' then
  local found = redis.call('XRANGE', stream, entry, entry)[1]
  if not found then return {'err', 'missing', 'key', stream, 'entry', entry} end
  bytes, entries = field(found[2], 'bytes'), field(found[2], 'entries')
else
  local oldest = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
  if oldest then -- entries before the oldest are trimmed: they count as acknowledged
    local size = #field(oldest[2], 'data') + #field(oldest[2], 'type') + #field(oldest[2], 'subject') + 256
    bytes = num(tonumber(field(oldest[2], 'bytes')) - size)
    entries = num(tonumber(field(oldest[2], 'entries')) - 1)
  end
end

local score = string.match(entry, '^%d+')
local newest = redis.call('ZREVRANGE', marks, 0, 0)[1]
local state = redis.call('HMGET', account, 'bytes', 'entries')

local done = redis.pcall('HSET', account, 'acked', entry, 'acked_bytes', bytes, 'acked_entries', entries,
                         'created', created, 'sequence', sequence)
if type(done) == 'table' and done.err then return {'err', 'server', 'detail', done.err} end
if action == 'rewind' then redis.call('ZREMRANGEBYSCORE', marks, '(' .. score, '+inf') end

if action == 'ack' then
  local at = newest and tonumber(string.match(newest, '(%d+)$')) or 0
  local other = not newest or string.match(newest, '^%S+ (%S+) ') ~= created
  if other or now - at >= tonumber(ARGV[9]) then
    redis.call('ZADD', marks, score, entry .. ' ' .. created .. ' ' .. sequence .. ' ' .. num(now))
  end
  -- The newest checkpoint that is old enough is where the kept part of the stream begins.
  local old = nil
  for _, mark in ipairs(redis.call('ZRANGE', marks, 0, 99)) do
    if now - tonumber(string.match(mark, '(%d+)$')) < tonumber(ARGV[8]) then break end
    old = mark
  end
  if old then
    redis.call('XTRIM', stream, 'MINID', string.match(old, '^(%S+)'))
    redis.call('ZREMRANGEBYSCORE', marks, '-inf', '(' .. string.match(old, '^%d+'))
  end
end
return {'ok', num((tonumber(state[2]) or 0) - tonumber(entries)), num((tonumber(state[1]) or 0) - tonumber(bytes))}
