-- Token bucket. Rule: num (units of one token), den (units a tick adds), full (units when full), tick (µs), period (µs).
-- State: ticks and fraction/den of one until the bucket is full again, and how many the Limit that wrote it lets that be
-- (its reach).
-- Stored: time (ticks since the epoch at which the bucket is full), reach, fraction, den, reach_fraction, tick; as doubles,
-- big-endian, and no more of them than are needed: without the last two the reach is whole and the tick 1 µs, without den
-- and fraction so is the time. The time alone is stored as a number in digits, which servers keep in the least memory: then
-- the reach is the period, as it is for all buckets without a burst of their own.
-- No bucket takes longer to fill: 36,500 days in µs, and a tick of the coarsest.
local COARSEST = 1000
local LONGEST = 3153600000000000 + COARSEST

-- The state in the units of a rule, rounded up to a whole tick where they differ; nil where it is as new.
local function in_units_of(state, rule)
  if not state then return nil end
  local den, tick = rule[2], rule[4]
  if state.den == den and state.tick == tick then
    if state.ticks < 0 then return nil end
    return state
  end
  local ticks, reach = state.ticks, state.reach
  if state.fraction > 0 then ticks = ticks + 1 end
  if state.reach_fraction > 0 then reach = reach + 1 end
  local time, span = ticks * state.tick + now - now % state.tick + tick - 1, reach * state.tick + tick - 1
  ticks = (time - time % tick) / tick - (now - now % tick) / tick
  if ticks < 0 then return nil end
  return {
    ticks = ticks, fraction = 0, reach = (span - span % tick) / tick, reach_fraction = 0, den = den, tick = tick,
  }
end

-- Time, reach, fraction, den, reach_fraction and tick of a stored value; nil where it is none.
local function parse_bucket(value, period)
  local time = tonumber(value)
  if time then return time, period, 0, 1, 0, 1 end
  local length = #value
  if length == 16 then
    local stored, reach = struct.unpack('>dd', value)
    return stored, reach, 0, 1, 0, 1
  elseif length == 32 then
    local stored, reach, fraction, den = struct.unpack('>dddd', value)
    return stored, reach, fraction, den, 0, 1
  elseif length == 48 then
    return struct.unpack('>dddddd', value)
  end
end

local function format_bucket(time, state, period)
  if state.tick ~= 1 or state.reach_fraction ~= 0 then
    return struct.pack('>dddddd', time, state.reach, state.fraction, state.den, state.reach_fraction, state.tick)
  elseif state.fraction ~= 0 then
    return struct.pack('>dddd', time, state.reach, state.fraction, state.den)
  elseif state.reach ~= period then
    return struct.pack('>dd', time, state.reach)
  end
  return time
end

algorithms.t = {
  read = function(slot, rule)
    slot.period = rule[5]
    local value = read_string(slot)
    if not value then return nil end
    local time, reach, fraction, den, reach_fraction, tick = parse_bucket(value, rule[5])
    if not time or (tick ~= 1 and tick ~= 10 and tick ~= 100 and tick ~= 1000) or not is_whole(time)
      or not is_whole(fraction) or not is_whole(den) or not is_whole(reach) or not is_whole(reach_fraction)
      or fraction >= den or reach_fraction >= den or reach * tick > LONGEST then
      slot.foreign = true
      return nil
    end
    local ticks = time - (now - now % tick) / tick
    if ticks > reach or (ticks == reach and fraction > reach_fraction) then
      ticks, fraction = reach, reach_fraction
      slot.ahead = true
    end
    -- What has just passed may still be missing when it is rounded up to another rule's ticks.
    if ticks * tick < -2 * COARSEST then
      slot.foreign = now - time * tick > overdue
      return nil
    end
    return { ticks = ticks, fraction = fraction, reach = reach, reach_fraction = reach_fraction, den = den, tick = tick }
  end,

  -- How many calls of a cost pass.
  holds = function(state, rule, cost)
    state = in_units_of(state, rule)
    local need, den, full = cost * rule[1], rule[2], rule[3]
    if not state then return full / need end
    -- Divided, not multiplied: a larger Limit's time may be further away than this one's units can count.
    if state.ticks > full / den then return 0 end
    return (full - state.ticks * den - state.fraction) / need
  end,

  take = function(state, rule, cost)
    state = in_units_of(state, rule)
    local den, full = rule[2], rule[3]
    local units = cost * rule[1]
    if state then units = units + state.ticks * den + state.fraction end
    local fraction, reach_fraction = units % den, full % den
    return {
      ticks = (units - fraction) / den, fraction = fraction,
      reach = (full - reach_fraction) / den, reach_fraction = reach_fraction, den = den, tick = rule[4],
    }
  end,

  give = function(state, rule, amount)
    local found = in_units_of(state, rule)
    -- Full, though still stored: nothing was taken that could be given back.
    if not found or (found.ticks == 0 and found.fraction == 0) then return state end
    local num, den, full = rule[1], rule[2], rule[3]
    local units = full
    if amount < full / num then units = amount * num end
    local given_fraction, reach_fraction = units % den, full % den
    local ticks, fraction = found.ticks - (units - given_fraction) / den, found.fraction - given_fraction
    if fraction < 0 then ticks, fraction = ticks - 1, fraction + den end
    if ticks < 0 or (ticks == 0 and fraction == 0) then return nil end
    local reach = (full - reach_fraction) / den
    if found.reach > reach or (found.reach == reach and found.reach_fraction > reach_fraction) then
      reach, reach_fraction = found.reach, found.reach_fraction
    end
    -- Rounded up to coarser ticks, the time may have passed the reach that was rounded up with it.
    if ticks > reach or (ticks == reach and fraction > reach_fraction) then reach, reach_fraction = ticks, fraction end
    return { ticks = ticks, fraction = fraction, reach = reach, reach_fraction = reach_fraction, den = den, tick = rule[4] }
  end,

  write = function(slot)
    local state = slot.state
    local tick = state.tick
    local time = state.ticks + (now - now % tick) / tick
    call('SET', slot.key, format_bucket(time, state, slot.period), 'PX', ttl((time + 1) * tick - now))
  end,

  view = function(slot, rule)
    local state = in_units_of(slot.state, rule)
    if not state then return 0, 0, 0 end
    return state.ticks, state.fraction, 0
  end,
}
