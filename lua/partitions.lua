-- Tells into how many partitions the keys of the store are divided, and records it where nothing is recorded yet.
--
-- KEYS: the record. ARGV: how many the caller would have, milliseconds that the record is to live at least; without these
-- nothing is written.
-- Reply: how many there are, 0 where nothing is recorded.
local recorded = redis.pcall('GET', KEYS[1])
if type(recorded) == 'table' then
  if not string.find(recorded.err, '^%-?WRONGTYPE') then return recorded end
  recorded = nil
end
recorded = recorded and tonumber(recorded)
if recorded and recorded >= 1 and recorded <= 4096 and 4096 % recorded == 0 then
  -- Never shortened: other clients may have keys that live longer. What is recorded counts also while the server refuses
  -- writes.
  if ARGV[2] and redis.call('PTTL', KEYS[1]) < ARGV[2] + 0 then redis.pcall('PEXPIRE', KEYS[1], ARGV[2]) end
  return recorded
end
if not ARGV[2] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1] + 0
