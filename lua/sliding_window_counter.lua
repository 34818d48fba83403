-- Sliding window of two counters. Rule: count, period (ticks), unused, tick (µs).
-- State: start of the current window (µs), hits in it, hits in the one before.
-- Stored: start, current, previous; little-endian.
algorithms.c = {
  read = function(slot, rule)
    local value = read_string(slot)
    if not value then return nil end
    local period = rule[2] * rule[4]
    local start, current, previous = -1, -1, -1
    if #value == 24 then start, current, previous = struct.unpack('<ddd', value) end
    if not is_whole(start) or not is_whole(current) or not is_whole(previous) or start % period ~= 0 then
      slot.foreign = true
      return nil
    end
    local window = now - now % period
    if start > window then
      start = window
      slot.ahead = true
    elseif start == window - period then
      start, current, previous = window, 0, current
    end
    if start < window or (current == 0 and previous == 0) then return nil end
    return { start = start, current = current, previous = previous, period = period }
  end,

  -- Ticks until the current window ends.
  left = function(rule)
    local period, tick = rule[2], rule[4]
    local elapsed = now % (period * tick)
    return period - (elapsed - elapsed % tick) / tick
  end,

  -- How many calls of a cost pass.
  holds = function(state, rule, cost)
    if not state then return rule[1] / cost end
    local period = rule[2]
    -- A larger Limit's count may carry this past 2^53: rounded, it still exceeds what there is room for.
    local weighted = state.previous * algorithms.c.left(rule)
    local rest = weighted % period
    local counted = (weighted - rest) / period
    if rest > 0 then counted = counted + 1 end
    return (rule[1] - state.current - counted) / cost
  end,

  take = function(state, rule, cost)
    local period = rule[2] * rule[4]
    state = state or { current = 0, previous = 0 }
    return { start = now - now % period, current = state.current + cost, previous = state.previous, period = period }
  end,

  give = function(state, rule, amount)
    local current = state.current > amount and state.current - amount or 0
    if current == 0 and state.previous == 0 then return nil end
    return { start = state.start, current = current, previous = state.previous, period = state.period }
  end,

  write = function(slot)
    local state = slot.state
    local as_new = state.start + state.period - now
    if state.current > 0 then as_new = as_new + state.period end
    call('SET', slot.key, struct.pack('<ddd', state.start, state.current, state.previous), 'PX', ttl(as_new))
  end,

  view = function(slot, rule)
    local state = slot.state
    return state and state.current or 0, state and state.previous or 0, algorithms.c.left(rule)
  end,
}
