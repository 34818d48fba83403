-- Token bucket. Rule: num (units of one token), den (units a tick adds), full (units when full), tick (µs).
-- State: the time at which the bucket is full again, in ticks and fraction/den of one, and how far ahead of its
-- own clock the Limit that wrote it lets that time be.
-- Stored: tick, time, fraction, den, reach, reach_fraction; little-endian.
-- No bucket takes longer to fill: 36,500 days in µs, and a tick of the coarsest.
local LONGEST = 3153600000000000 + 1000

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
    local current = (now - now % tick) / tick
    local ahead = time - current
    if ahead > reach or (ahead == reach and fraction > reach_fraction) then
      time, fraction = current + reach, reach_fraction
      slot.ahead = true
    end
    return { tick = tick, time = time, fraction = fraction, den = den, reach = reach, reach_fraction = reach_fraction }
  end,

  -- Whole ticks and the fraction of one until the bucket is full, in the caller's units (rounded up to a whole
  -- tick when another Limit's units differ), then the reach likewise.
  missing = function(state, rule)
    if not state then return 0, 0, 0, 0 end
    local den, tick = rule[2], rule[4]
    local time, fraction, reach, reach_fraction = state.time, state.fraction, state.reach, state.reach_fraction
    if state.den ~= den or state.tick ~= tick then
      if fraction > 0 then time = time + 1 end
      if reach_fraction > 0 then reach = reach + 1 end
      time, reach = time * state.tick + tick - 1, reach * state.tick + tick - 1
      time, reach = (time - time % tick) / tick, (reach - reach % tick) / tick
      fraction, reach_fraction = 0, 0
    end
    time = time - (now - now % tick) / tick
    if time < 0 then return 0, 0, 0, 0 end
    return time, fraction, reach, reach_fraction
  end,

  passes = function(state, rule, cost)
    local ticks, fraction = algorithms.t.missing(state, rule)
    local num, den, full = rule[1], rule[2], rule[3]
    -- Divided, not multiplied: a larger Limit's time may be further away than this one's units can count.
    if ticks > full / den then return false end
    return ticks * den + fraction <= full - cost * num
  end,

  at = function(units, rule)
    local den, full, tick = rule[2], rule[3], rule[4]
    local fraction, reach_fraction = units % den, full % den
    return {
      tick = tick, den = den, fraction = fraction, reach_fraction = reach_fraction,
      time = (now - now % tick) / tick + (units - fraction) / den,
      reach = (full - reach_fraction) / den,
    }
  end,

  take = function(state, rule, cost)
    local ticks, fraction = algorithms.t.missing(state, rule)
    return algorithms.t.at(ticks * rule[2] + fraction + cost * rule[1], rule)
  end,

  give = function(state, rule, amount)
    local ticks, fraction, reach, reach_fraction = algorithms.t.missing(state, rule)
    -- Full, though still stored: nothing was taken that could be given back.
    if ticks == 0 and fraction == 0 then return state end
    local num, den, full = rule[1], rule[2], rule[3]
    local units = full
    if amount < full / num then units = amount * num end
    local given_fraction = units % den
    local given = (units - given_fraction) / den
    ticks, fraction = ticks - given, fraction - given_fraction
    if fraction < 0 then ticks, fraction = ticks - 1, fraction + den end
    if ticks < 0 or (ticks == 0 and fraction == 0) then return nil end
    local left = algorithms.t.at(0, rule)
    left.time, left.fraction = left.time + ticks, fraction
    if reach > left.reach or (reach == left.reach and reach_fraction > left.reach_fraction) then
      left.reach, left.reach_fraction = reach, reach_fraction
    end
    -- Rounded up to coarser ticks, the time may have passed the reach that was rounded up with it.
    if ticks > left.reach or (ticks == left.reach and fraction > left.reach_fraction) then
      left.reach, left.reach_fraction = ticks, fraction
    end
    return left
  end,

  write = function(slot)
    local state = slot.state
    local value = struct.pack('<Hddddd', state.tick, state.time, state.fraction, state.den, state.reach, state.reach_fraction)
    call('SET', slot.key, value, 'PX', ttl((state.time + 1) * state.tick - now))
  end,

  view = function(slot, rule)
    local ticks, fraction = algorithms.t.missing(slot.state, rule)
    return ticks, fraction, 0
  end,
}
