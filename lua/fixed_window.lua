-- Fixed window. Rule: count, period (µs). State: start of the window (µs), hits counted in it.
-- Stored: start, count; little-endian.
algorithms.f = {
  read = function(slot, rule)
    local value = read_string(slot)
    if not value then return nil end
    local period = rule[2]
    local start, count = -1, -1
    if #value == 16 then start, count = struct.unpack('<dd', value) end
    if not is_whole(start) or not is_whole(count) or start % period ~= 0 then
      slot.foreign = true
      return nil
    end
    local window = now - now % period
    if start > window then
      start = window
      slot.ahead = true
    end
    if start < window or count == 0 then return nil end
    return { start = start, count = count, period = period }
  end,

  -- How many calls of a cost pass.
  holds = function(state, rule, cost)
    return (rule[1] - (state and state.count or 0)) / cost
  end,

  take = function(state, rule, cost)
    local period = rule[2]
    return { start = now - now % period, count = (state and state.count or 0) + cost, period = period }
  end,

  give = function(state, rule, amount)
    if amount >= state.count then return nil end
    return { start = state.start, count = state.count - amount, period = state.period }
  end,

  write = function(slot)
    local state = slot.state
    call('SET', slot.key, struct.pack('<dd', state.start, state.count), 'PX', ttl(state.start + state.period - now))
  end,

  view = function(slot, rule)
    return slot.state and slot.state.count or 0, rule[2] - now % rule[2], 0
  end,
}
