-- Token bucket. Rule: num (units of one token), den (units a tick adds), full (units when full), tick (µs).
-- State: ticks and fraction/den of one until the bucket is full again, and how many the Limit that wrote it lets that be
-- (its reach).
-- Stored: tick, time (ticks since the epoch at which the bucket is full), fraction, den, reach, reach_fraction;
-- little-endian.
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

algorithms.t = {
  read = function(slot)
    local value = read_string(slot)
    if not value then return nil end
    local tick, time, fraction, den, reach, reach_fraction = 0, 0, 0, 0, 0, 0
    if #value == 42 then tick, time, fraction, den, reach, reach_fraction = struct.unpack('<Hddddd', value) end
    if (tick ~= 1 and tick ~= 10 and tick ~= 100 and tick ~= 1000) or not is_whole(time) or not is_whole(fraction)
      or not is_whole(den) or not is_whole(reach) or not is_whole(reach_fraction)
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
    if ticks * tick < -2 * COARSEST then return nil end
    return { ticks = ticks, fraction = fraction, reach = reach, reach_fraction = reach_fraction, den = den, tick = tick }
  end,

  passes = function(state, rule, cost)
    state = in_units_of(state, rule)
    if not state then return cost * rule[1] <= rule[3] end
    local den, full = rule[2], rule[3]
    -- Divided, not multiplied: a larger Limit's time may be further away than this one's units can count.
    if state.ticks > full / den then return false end
    return state.ticks * den + state.fraction <= full - cost * rule[1]
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
    local value = struct.pack('<Hddddd', tick, time, state.fraction, state.den, state.reach, state.reach_fraction)
    call('SET', slot.key, value, 'PX', ttl((time + 1) * tick - now))
  end,

  view = function(slot, rule)
    local state = in_units_of(slot.state, rule)
    if not state then return 0, 0, 0 end
    return state.ticks, state.fraction, 0
  end,
}
