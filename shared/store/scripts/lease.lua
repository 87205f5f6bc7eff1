-- lease.lua: take, renew or give back one lease, on the server's clock.
--
-- KEYS[1] meta hash   KEYS[2] lease hash   KEYS[3] log stream
-- ARGV[1] acquire | renew | release   ARGV[2] nonce   ARGV[3] holder   ARGV[4] time to live (microseconds)
-- ARGV[5] epoch   ARGV[6] silence after which the same holder's new process takes over (microseconds)
-- ARGV[7] how long log entries are kept (microseconds)
-- Reply: {'ok', fencing} | {'held', holder} | {'lost', holder} | {'err', code, name, value, ...}

local meta, lease, log = KEYS[1], KEYS[2], KEYS[3]
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local action, nonce, holder, ttl, epoch = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]

local function num(x) return string.format('%.0f', x) end

local function typed(key, want)
  local have = redis.call('TYPE', key).ok
  return have ~= 'none' and have ~= want and {'err', 'type', 'key', key, 'have', have, 'want', want}
end

local problem = typed(meta, 'hash') or typed(lease, 'hash') or typed(log, 'stream')
if problem then return problem end
if not redis.acl_check_cmd('HSET', lease, 'a', 'b') then return {'err', 'denied', 'key', lease, 'command', 'HSET'} end
local state = redis.call('HMGET', meta, 'epoch', 'revision')
if state[1] ~= epoch or not state[2] then return {'err', 'epoch', 'epoch', state[1] or ''} end

local kept = redis.call('HMGET', lease, 'nonce', 'fencing', 'holder', 'expires', 'epoch', 'renewed')
local live = kept[1] and kept[5] == epoch and tonumber(kept[4]) > now
local mine = live and kept[1] == nonce

if action == 'release' then
  if mine then redis.call('DEL', lease) end
  return {'ok', '0'}
end

if action == 'renew' then
  if not mine then return {'lost', kept[3] or ''} end
  local done = redis.pcall('HSET', lease, 'expires', num(now + ttl), 'renewed', num(now))
  if type(done) == 'table' and done.err then return {'err', 'server', 'detail', done.err} end
  -- Renewals beat all the time, so they also keep an idle log short.
  local oldest = now - tonumber(ARGV[7])
  if redis.call('XTRIM', log, 'MINID', num(oldest)) > 0 then redis.call('HSET', meta, 'log_floor', num(oldest - 1)) end
  return {'ok', kept[2]}
end

local restarted = live and kept[3] == holder and now - (tonumber(kept[6]) or 0) > tonumber(ARGV[6])
if live and not mine and not restarted then return {'held', kept[3]} end
local fencing = math.max(tonumber(state[2]) + 1, now)
local done = redis.pcall('HSET', meta, 'revision', num(fencing))
if type(done) == 'table' and done.err then return {'err', 'server', 'detail', done.err} end
redis.call('HSET', lease, 'nonce', nonce, 'fencing', num(fencing), 'holder', holder, 'expires', num(now + ttl),
           'epoch', epoch, 'renewed', num(now))
return {'ok', num(fencing)}
