-- snapshot.lua: every document of some kinds at one instant.
-- Called by EVALSHA_RO: that asks only for the right to read KEYS.
--
-- KEYS[1] meta hash   KEYS[2..] index sorted sets
-- ARGV[i] start of the document keys of KEYS[i + 1]
-- Reply: {epoch, revision, kinds, then for each kind: count, and per document member, rev, uid, schema, body}

local kept = redis.call('HMGET', KEYS[1], 'epoch', 'revision')
local reply = {kept[1] or '', kept[2] or '0', #KEYS - 1}
for i = 2, #KEYS do
  local members = redis.call('ZRANGE', KEYS[i], 0, -1)
  local at = #reply + 1
  local count = 0
  reply[at] = 0
  for _, member in ipairs(members) do
    local d = redis.call('HMGET', ARGV[i - 1] .. member, 'rev', 'uid', 'schema', 'body')
    if d[1] and d[2] and d[3] and d[4] then
      local n = #reply
      reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4], reply[n + 5] = member, d[1], d[2], d[3], d[4]
      count = count + 1
    end
  end
  reply[at] = count
end
return reply
