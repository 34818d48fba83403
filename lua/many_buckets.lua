-- Judges checks of many token buckets, each with its own key: what `limit` would do, for less.
--
-- KEYS: the stored keys. ARGV: now (µs since the epoch; empty asks the server), then for each run of keys with one rule: how
-- many keys, the rule (num, full, den, and how long a bucket without a burst of its own takes to fill, in µs), and for each
-- key what is asked for: a cost; or, negative, how many calls, and their cost; or 0, how often such a pair follows, and these.
-- A key that lost its time to live gets one again with what is taken; where nothing can be, it is unusual.
-- Reply: for each key the units that were there before, negative where a larger Limit has taken more; now; keys healed.
-- Nothing, where what is stored is unusual: then nothing was written, and `limit` is to judge.
--
-- Every key is read and judged before the first one is written.
local call = redis.call
if not KEYS[1] then return false end
local now, extra_ttl = tonumber(ARGV[1]), 600001
if not now then
  local time = call('TIME')
  now, extra_ttl = time[1] * 1000000 + time[2], 2
end
local values = call('MGET', unpack(KEYS))
local reply, charged, new = {}, {}, {}
local key, position = 0, 2

while ARGV[position] do
  local num, full, den, period = ARGV[position + 1] + 0, ARGV[position + 2] + 0, ARGV[position + 3] + 0, ARGV[position + 4] + 0
  local last_key = key + ARGV[position]
  local full_reach = full / den
  position = position + 5
  while key < last_key do
    key = key + 1
    local value, missing = values[key], 0
    if value then
      -- include stored_bucket
    end
    local room = full - missing
    reply[key] = room
    local taken = ARGV[position] * num
    position = position + 1
    if taken < 0 then
      local need, most = ARGV[position] * num, -ARGV[position - 1]
      position = position + 1
      taken = room / need
      taken = taken - taken % 1
      taken = need * (taken < most and taken or most)
    elseif taken == 0 then
      local last_pair = position + 2 * ARGV[position]
      while position < last_pair do
        local need = ARGV[position + 2] * num
        local most, count = (room - taken) / need, ARGV[position + 1] + 0
        most = most - most % 1
        if most > 0 then taken = taken + need * (count < most and count or most) end
        position = position + 2
      end
      position = position + 1
    end
    if taken > 0 and taken <= room then
      missing = missing + taken
      local fraction = missing % den
      missing = (missing - fraction) / den
      charged[key] = missing
      local stored = now + missing
      if fraction > 0 then
        values[key] = struct.pack('>dddd', stored, full_reach, fraction, den)
      elseif full_reach ~= period then
        values[key] = struct.pack('>dd', stored, full_reach)
      else
        values[key] = stored
      end
      if not value then new[key] = true end
    elseif value and call('PTTL', KEYS[key]) < 0 then
      return false
    end
  end
end

local healed = 0
for i = 1, key do
  local ticks = charged[i]
  if ticks then
    local ttl = ticks / 1000
    ttl = ttl - ttl % 1 + extra_ttl
    -- MGET hides what is not a string.
    if not new[i] or not call('SET', KEYS[i], values[i], 'PX', ttl, 'NX') then
      if new[i] then healed = healed + 1 end
      call('SET', KEYS[i], values[i], 'PX', ttl)
    end
  end
end
reply[key + 1], reply[key + 2] = now, healed
return reply
