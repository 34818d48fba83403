-- Judges one check of one token bucket: the commonest call of all, and what `limit` would do, for less.
--
-- KEYS: the stored key. ARGV: now (µs since the epoch; empty asks the server, `?` does and tells it), then in units of 1/den
-- µs what one call takes and what the full bucket holds; and, where it is not the full bucket, how long a bucket without
-- a burst of its own takes to fill (µs); den, where it is not 1; how many such calls there are, where it is not one.
-- A key that lost its time to live gets one again with what is taken; where nothing can be, it is unusual.
-- Reply: the units that were there before, negative where a larger Limit has taken more; with `?` also now. Nothing, where
-- what is stored is unusual: then nothing was written, and `limit` is to judge.
local call = redis.call
if not KEYS[1] then return false end
local now, ttl = tonumber(ARGV[1]), 600001
if not now then
  local time = call('TIME')
  now, ttl = time[1] * 1000000 + time[2], 2
end
local need, full = ARGV[2] + 0, ARGV[3] + 0
local period, den = tonumber(ARGV[4]) or full, tonumber(ARGV[5]) or 1
local value = call('GET', KEYS[1])
local missing = 0
if value then
  -- include stored_bucket
end
local room = full - missing
local taken = need
local count = ARGV[6]
if count and room >= need then
  local most = room / need
  most = most - most % 1
  count = count + 0
  taken = need * (count < most and count or most)
end
if room >= need then
  missing = missing + taken
  local reach = full / den
  local fraction = missing % den
  local ticks = (missing - fraction) / den
  local stored = now + ticks
  if fraction > 0 then
    stored = struct.pack('>dddd', stored, reach, fraction, den)
  elseif reach ~= period then
    stored = struct.pack('>dd', stored, reach)
  end
  local milliseconds = ticks / 1000
  call('SET', KEYS[1], stored, 'PX', milliseconds - milliseconds % 1 + ttl)
end
if value and room < need and call('PTTL', KEYS[1]) < 0 then return false end
if ARGV[1] == '?' then return { room, now } end
return room
