-- Sliding window (log). Rule: count, period (µs).
-- Stored: a sorted set with one member for each hit: score = its time on the log's clock, member = the sum of all
-- costs up to and with it, modulo 2^53. Sums make counting two look-ups: the newest sum less that of the newest hit
-- that no longer counts, which is therefore kept.
-- The log's clock is the server's plus `shift`, which grows when the server's clock steps back: the log's never does.
-- It is known from the newest hit, or, after a refund, from the time of that (`latest`): `sum:shift:latest`, where
-- these are needed.
-- Adding costs O(log n) and frees at most 16 old hits; a long log without a hit that counts is freed with UNLINK.
local MODULUS = 9007199254740992
local PRUNED_PER_CALL = 16
-- A log of so many hits or fewer is freed hit by hit: servers keep it in one piece of memory.
local FREED_PER_HIT = 128
-- So many hits are read in one go rather than searched.
local READ_AT_ONCE = 8

local function parse_member(member)
  local sum, shift, latest = tonumber(member), 0, 0
  if not sum then
    sum, shift, latest = string.match(member, '^(%d+):(%d+):(%d+)$')
    if not sum then return nil end
    sum, shift, latest = sum + 0, shift + 0, latest + 0
  end
  if is_whole(sum) and is_whole(shift) and is_whole(latest) then return sum, shift, latest end
  return nil
end

local function format_member(sum, shift, latest)
  if shift == 0 and latest == 0 then return string.format('%.0f', sum) end
  return string.format('%.0f:%.0f:%.0f', sum, shift, latest)
end

-- The sum of costs from `base` to `sum`.
local function since(base, sum)
  local difference = sum - base
  if difference < 0 then difference = difference + MODULUS end
  return difference
end

-- The sum that is `counted` more than `base`, without passing 2^53 on the way.
local function plus(base, counted)
  if base >= MODULUS - counted then return base - (MODULUS - counted) end
  return base + counted
end

algorithms.l = {
  read = function(slot, rule)
    local key, period = slot.key, rule[2]
    local newest = redis.pcall('ZRANGE', key, -1, -1, 'WITHSCORES')
    if newest.err then
      if not string.find(newest.err, '^%-?WRONGTYPE') then call('ZRANGE', key, -1, -1) end
      slot.foreign = true
      return nil
    end
    if not newest[1] then return nil end
    local sum, shift, latest = parse_member(newest[1])
    local time = tonumber(newest[2])
    if not sum or not is_whole(time) or call('PTTL', key) < 0 then
      slot.foreign = true
      return nil
    end
    slot.newest, slot.newest_time = newest[1], time
    local clock = now + shift
    if latest < time then latest = time end
    local ahead = clock < latest
    if ahead then clock, shift = latest, latest - now end
    local horizon = clock - period
    if time <= horizon then
      slot.stale = true
      return nil
    end
    local base, gone = 0, call('ZCOUNT', key, '-inf', horizon)
    if gone > 0 then
      base = parse_member(call('ZRANGE', key, gone - 1, gone - 1)[1])
      if not base then
        slot.foreign = true
        return nil
      end
    end
    slot.ahead = ahead
    if latest == time then latest = 0 end
    local stored = since(base, sum)
    return {
      base = base, gone = gone, time = time, shift = shift, latest = latest, period = period,
      stored = stored, counted = stored, added = 0,
    }
  end,

  -- How many calls of a cost pass.
  holds = function(state, rule, cost)
    return (rule[1] - (state and state.counted or 0)) / cost
  end,

  take = function(state, rule, cost)
    state = state or { base = 0, gone = 0, shift = 0, stored = 0, counted = 0, added = 0 }
    state.time, state.latest, state.period = now + state.shift, 0, rule[2]
    state.counted, state.added = state.counted + cost, state.added + cost
    return state
  end,

  give = function(state, rule, amount)
    if amount >= state.counted then return nil end
    return {
      base = state.base, gone = state.gone, shift = state.shift, latest = now + state.shift, period = state.period,
      stored = state.stored, counted = state.counted - amount, added = 0,
    }
  end,

  -- The rank, the time and the member of the first stored hit with at least `wanted` counted up to and with it. None
  -- where the log turns out to be unreadable.
  -- Every hit counts for at least one, which bounds the rank from both sides: hits of one leave nothing to search.
  -- Otherwise it looks where evenly spread costs would put the hit, a little towards the middle, yet never so far from it
  -- that it takes over two look-ups more than halving would: the ITP method of Oliveira and Takahashi (2020).
  find = function(slot, wanted)
    local state, key = slot.state, slot.key
    local last = call('ZCARD', key) - 1
    local low = math.max(state.gone, last - (state.stored - wanted))
    local high = math.min(state.gone + wanted - 1, last)
    -- A rank whose count stays below, and one that reaches it, each with its count.
    local below, below_count, above, above_count = state.gone - 1, 0, last, state.stored
    local reach = 4 * (high - low)
    while high - low >= READ_AT_ONCE do
      reach = reach / 2
      local expected = below + (wanted - below_count) / (above_count - below_count) * (above - below)
      local half, step = (low + high) / 2, math.sqrt(high - low) / 2
      if expected < half then expected = math.min(expected + step, half) else expected = math.max(expected - step, half) end
      local rank = math.floor(math.min(math.max(expected, high - 1 - reach, low), low + reach, high - 1))
      local sum = parse_member(call('ZRANGE', key, rank, rank)[1])
      if not sum then
        slot.foreign, slot.state = true, nil
        return nil
      end
      local count = since(state.base, sum)
      if count >= wanted then
        high, above, above_count = rank, rank, count
      else
        low, below, below_count = rank + 1, rank, count
      end
    end
    local hits = call('ZRANGE', key, low, high, 'WITHSCORES')
    for i = 1, #hits - 2, 2 do
      local sum = parse_member(hits[i])
      if sum and since(state.base, sum) >= wanted then return low, hits[i + 1] + 0, hits[i] end
      low = low + 1
    end
    return low, hits[#hits] + 0, hits[#hits - 1]
  end,

  -- Tries the commands of `write` so that no hit changes. The first is one that a server without memory refuses: behind
  -- another write it would not.
  rehearse = function(slot)
    local state, key = slot.state, slot.key
    call('ZADD', key, 'XX', 0, '-')
    call('ZREM', key, '-')
    call('ZREMRANGEBYRANK', key, 1, 0)
    call('PEXPIRE', key, ttl(state.time + state.period - now - state.shift))
  end,

  write = function(slot)
    local state, key = slot.state, slot.key
    local is_new = not slot.newest or slot.stale or slot.foreign
    local old = 0
    if slot.stale then old = call('ZCARD', key) end
    if slot.foreign or old > FREED_PER_HIT then
      call('UNLINK', key)
      old = 0
    end
    -- Lest a key be left without a time to live.
    if is_new then algorithms.l.rehearse(slot) end
    if state.rank then call('ZREMRANGEBYRANK', key, state.rank + 1, -1) end
    if old > 1 then call('ZREMRANGEBYRANK', key, 0, -2) end
    local replaced = state.replaced or ((old > 0 or (not is_new and slot.newest_time == state.time)) and slot.newest)
    local member = format_member(plus(state.base, state.counted), state.shift, state.latest)
    -- The new member before the old one goes, lest the key go with it.
    call('ZADD', key, string.format('%.0f', state.time), member)
    if replaced and replaced ~= member then call('ZREM', key, replaced) end
    call('PEXPIRE', key, ttl(state.time + state.period - now - state.shift))
    if state.gone > 1 then call('ZREMRANGEBYRANK', key, 0, math.min(state.gone - 1, PRUNED_PER_CALL) - 1) end
  end,

  view = function(slot, rule, cost)
    local state = slot.state
    if not state then return 0, 0, 0 end
    local clock, period = now + state.shift, rule[2]
    if not state.time then
      state.rank, state.time, state.replaced = algorithms.l.find(slot, state.counted)
      if not state.time then return 0, 0, 0 end
    end
    local until_new = state.time + period - clock
    local excess = state.counted + cost - rule[1]
    if cost == 0 or excess <= 0 then return state.counted, until_new, 0 end
    local oldest, _ = clock, nil
    if excess <= state.counted - state.added then
      _, oldest = algorithms.l.find(slot, excess)
      if not oldest then return 0, 0, 0 end
    end
    return state.counted, until_new, oldest + period - clock
  end,
}
