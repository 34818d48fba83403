-- Reads a stored bucket for the scripts of buckets alone: from `value`, at `now`, in units of `den`, the units that are `missing`.
-- `period` is how long a bucket without a burst of its own takes to fill. What is unusual ends the script without an answer:
-- another den, a time further ahead than the Limit that wrote it allows, or one so long past that the key should be gone.
local ticks, reach, fraction = tonumber(value), period, 0
if not ticks then
  local length = #value
  if length == 16 then
    ticks, reach = struct.unpack('>dd', value)
  elseif length == 32 then
    local stored_den
    ticks, reach, fraction, stored_den = struct.unpack('>dddd', value)
    if stored_den ~= den or fraction >= den then return false end
  else
    return false
  end
end
ticks = ticks - now
if ticks >= 0 then
  missing = ticks * den + fraction
  if ticks > reach or (ticks == reach and fraction > 0) or missing % 1 ~= 0 or missing > 9007199254740991 then
    return false
  end
elseif not (ticks >= -100000) then
  return false
end
