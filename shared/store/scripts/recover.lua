-- recover.lua: starts a new epoch when this server is not the one (or not the state) the last epoch was made on.
-- Run before any other script is loaded; a server that lost its scripts may have lost writes.
--
-- KEYS[1] meta hash   KEYS[2] log stream
-- ARGV[1] random text for the epoch's name   ARGV[2] highest revision the caller has ever seen
-- ARGV[3] how far a new epoch jumps (microseconds)   ARGV[4] how many gaps are remembered
-- ARGV[5..] outbox streams (only read, hence no KEYS: those would ask for the right to write them)
-- Reply: {'ok', epoch, revision, '1' when it is new} | {'err', code, name, value, ...}

local meta, log = KEYS[1], KEYS[2]
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])

local function num(x) return string.format('%.0f', x) end

local function kind_of(key) return redis.call('TYPE', key).ok end

local function wrong(key, want)
  local have = kind_of(key)
  return have ~= 'none' and have ~= want and {'err', 'type', 'key', key, 'have', have, 'want', want}
end

-- The newest id a stream ever had; flat name-value list.
local function top(key)
  if kind_of(key) ~= 'stream' then return 0 end
  local info = redis.call('XINFO', 'STREAM', key)
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then return tonumber(string.match(info[i + 1], '^%d+')) end
  end
  return 0
end

local problem = wrong(meta, 'hash') or wrong(log, 'stream')
if problem then return problem end
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local kept = redis.call('HMGET', meta, 'run_id', 'epoch', 'revision', 'gaps', 'logged')
local revision, seen = tonumber(kept[3] or '0') or 0, tonumber(ARGV[2]) or 0
local highest = math.max(revision, top(log))
for i = 5, #ARGV do highest = math.max(highest, top(ARGV[i])) end
if kept[1] == run_id and kept[2] and highest == revision and seen <= revision then return {'ok', kept[2], kept[3], '0'} end

local base = math.max(now, highest, seen) + tonumber(ARGV[3])
local epoch = num(base) .. '-' .. ARGV[1]
local gaps = {}
for gap in string.gmatch(kept[4] or '', '%S+') do gaps[#gaps + 1] = gap end
gaps[#gaps + 1] = num(revision) .. ':' .. num(base)
while #gaps > tonumber(ARGV[4]) do table.remove(gaps, 1) end

local floor = redis.call('HGET', meta, 'log_floor')
if kind_of(log) == 'none' then floor = num(base - 1) end -- nothing before this epoch can be replayed
local begun = redis.pcall('HSET', meta, 'run_id', run_id, 'epoch', epoch, 'revision', num(base),
                          'gaps', table.concat(gaps, ' '), 'log_floor', floor or '0', 'logged', num(base))
if type(begun) == 'table' and begun.err then return {'err', 'server', 'detail', begun.err} end
redis.call('XADD', log, num(base) .. '-0', 'kind', '', 'namespace', '', 'name', epoch, 'uid', '', 'type', 'EPOCH',
           'schema', '0', 'prev', kept[5] or '0', 'labels', '', 'body', '{}')
return {'ok', epoch, num(base), '1'}
