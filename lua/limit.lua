-- Judges a list of entries, strictly in order, and charges those that pass.
--
-- KEYS: the stored keys, each once. ARGV: now (µs since the epoch, for tests and replays; empty asks the server), operation,
-- how many rules, and for each its algorithm and five parameters; then for each entry: how many Limits it has, for each the
-- index of its key and of its rule; how many runs of equal calls it makes, and for each the amount and how many calls.
-- Reply: now, keys healed, then for each run: how many of its calls are allowed, which are the first, and three numbers for
-- each Limit as it is after them, which `algorithm` in the core turns into Decisions.
--
-- Every key is read and judged before the first one is written: an error half-way leaves nothing half-charged.
local call = redis.call
local operation = ARGV[2]
local now = tonumber(ARGV[1])
-- A key judged at a given time must outlive that time, whatever the server's clock says meanwhile.
local extra_ttl, overdue = 600000, math.huge
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
  -- What is as new for so long has lost its time to live, or was never ours.
  extra_ttl, overdue = 1, 100000
end
local healed = 0

-- The value of a string key, or nil; a wrong type or a lost TTL reads as nil and marks the slot to be healed.
local function read_string(slot)
  local value = redis.pcall('GET', slot.key)
  if not value then return nil end
  if type(value) == 'table' then
    if not string.find(value.err, '^%-?WRONGTYPE') then call('GET', slot.key) end
    slot.foreign = true
    return nil
  end
  if call('PTTL', slot.key) < 0 then
    slot.foreign = true
    return nil
  end
  return value
end

-- A number that a state may hold: whole, not negative, exact.
local function is_whole(number)
  return number >= 0 and number <= 9007199254740991 and number % 1 == 0
end

-- Milliseconds to live for a key that is as new in `microseconds`: at least until then, and little more.
local function ttl(microseconds)
  return (microseconds - microseconds % 1000) / 1000 + 1 + extra_ttl
end

local algorithms = {}
-- include algorithms

-- What the keys hold; later Limits of the same call see what earlier ones left. A slot knows its key, its algorithm and its
-- state; what was found: foreign (not ours), ahead (of the clock), of a log stale (nothing counts), newest and newest_time;
-- and what was done: touched (anything that may write), reset, changed.
local slots = {}
local is_check, is_refund, is_reset = operation == 'check', operation == 'refund', operation == 'reset'
local judged, judged_by = {}, {}

-- How many of `count` calls pass every one of the first Limits.
local function grants(limits, cost, count)
  if cost == 0 then return count end
  for i = 1, limits do
    local passing = judged[i].algorithm.holds(judged[i].state, judged_by[i], cost)
    if passing < count then count = passing - passing % 1 end
  end
  return count > 0 and count or 0
end

local rules, position = {}, 4
for i = 1, ARGV[3] do
  rules[i] = {
    ARGV[position + 1] + 0, ARGV[position + 2] + 0, ARGV[position + 3] + 0, ARGV[position + 4] + 0, ARGV[position + 5] + 0,
    algorithm = algorithms[ARGV[position]],
  }
  position = position + 6
end
local reply = { now, 0 }
local said = 2
while ARGV[position] do
  local limits = ARGV[position] + 0
  position = position + 1
  for i = 1, limits do
    local index, rule = ARGV[position] + 0, rules[ARGV[position + 1] + 0]
    local slot = slots[index]
    if not slot then
      slot = { key = KEYS[index], algorithm = rule.algorithm }
      slots[index] = slot
      slot.state = rule.algorithm.read(slot, rule)
    end
    judged[i], judged_by[i] = slot, rule
    position = position + 2
  end
  local last = position + 2 * ARGV[position]
  position = position + 1
  while position < last do
    local amount, count = ARGV[position] + 0, ARGV[position + 1] + 0
    position = position + 2
    -- A peek, and the refund of nothing, write nothing: not even what they would mend.
    local touches = is_check or is_reset or (is_refund and amount > 0)
    for i = 1, limits do
      local slot = judged[i]
      if touches then slot.touched = true end
      if is_reset then
        slot.state, slot.reset = nil, true
      elseif is_refund and amount > 0 and slot.state then
        local left = slot.algorithm.give(slot.state, judged_by[i], amount)
        slot.changed = slot.changed or left ~= slot.state
        slot.state = left
      end
    end

    local cost = is_check and amount or 1
    local granted = grants(limits, cost, count)
    if is_check and granted > 0 and cost > 0 then
      for i = 1, limits do
        local slot = judged[i]
        slot.state, slot.changed = slot.algorithm.take(slot.state, judged_by[i], cost * granted), true
      end
    end

    -- What passed waits for nothing.
    if granted == count then cost = 0 end
    said = said + 1
    reply[said] = granted
    for i = 1, limits do
      reply[said + 1], reply[said + 2], reply[said + 3] = judged[i].algorithm.view(judged[i], judged_by[i], cost)
      said = said + 3
    end
  end
end

-- What goes comes first and what takes several commands last: a right that is missing, or a slot that is on its way to another
-- node, then stops the call before anything is charged. A log that is not alone is rehearsed before, for the same reason.
-- What is there is replaced, not removed first: in such a slot a key that is gone cannot be made anew.
local gone, plain, logs = {}, {}, {}
for i = 1, #slots do
  local slot = slots[i]
  if slot.touched then
    if slot.foreign or slot.ahead then healed = healed + 1 end
    if slot.changed or slot.foreign or slot.reset or (slot.state and slot.ahead) then
      if not slot.state then
        gone[#gone + 1] = slot
      elseif slot.algorithm.rehearse then
        logs[#logs + 1] = slot
      else
        plain[#plain + 1] = slot
      end
    end
  end
end
if #slots > 1 then
  for i = 1, #logs do
    if logs[i].foreign then call('UNLINK', logs[i].key) end
    logs[i].algorithm.rehearse(logs[i])
  end
end
for i = 1, #gone do call('UNLINK', gone[i].key) end
for i = 1, #plain do plain[i].algorithm.write(plain[i]) end
for i = 1, #logs do logs[i].algorithm.write(logs[i]) end
reply[2] = healed
return reply
