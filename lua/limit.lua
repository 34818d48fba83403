-- Judges a list of entries, strictly in order, and charges those that pass.
--
-- KEYS: the stored keys, each once. ARGV: now (µs since the epoch, for tests and replays; none asks the server),
-- operation, then for each entry: amount, number of Limits, and for each Limit: index in KEYS, algorithm and its
-- four parameters.
-- Reply: now, keys healed, then for each entry: 1 or 0 (allowed), and three numbers for each Limit, which
-- `algorithm` in the core turns into the Decision.
--
-- Every key is read and judged before the first one is written: an error half-way leaves nothing half-charged.
local call = redis.call
local operation = ARGV[2]
local now = tonumber(ARGV[1])
-- A key judged at a given time must outlive that time, whatever the server's clock says meanwhile.
local extra_ttl = 600000
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
  extra_ttl = 1
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
local judged, rules = {}, {}
local reply = { now, 0 }
local said = 2
local position = 3
while ARGV[position] do
  local amount, count = ARGV[position] + 0, ARGV[position + 1] + 0
  -- A peek, and the refund of nothing, write nothing: not even what they would mend.
  local touches = is_check or is_reset or (is_refund and amount > 0)
  position = position + 2
  for i = 1, count do
    local index = ARGV[position] + 0
    local rule = { ARGV[position + 2] + 0, ARGV[position + 3] + 0, ARGV[position + 4] + 0, ARGV[position + 5] + 0 }
    local slot = slots[index]
    if not slot then
      slot = { key = KEYS[index], algorithm = algorithms[ARGV[position + 1]] }
      slots[index] = slot
      slot.state = slot.algorithm.read(slot, rule)
    end
    if touches then
      slot.touched = true
      if is_reset then
        slot.state, slot.reset = nil, true
      elseif is_refund and slot.state then
        local left = slot.algorithm.give(slot.state, rule, amount)
        slot.changed = slot.changed or left ~= slot.state
        slot.state = left
      end
    end
    judged[i], rules[i] = slot, rule
    position = position + 6
  end

  local cost = is_check and amount or 1
  local allowed = 1
  if cost > 0 then
    for i = 1, count do
      if not judged[i].algorithm.passes(judged[i].state, rules[i], cost) then allowed = 0 end
    end
    if is_check and allowed == 1 then
      for i = 1, count do
        local slot = judged[i]
        slot.state, slot.changed = slot.algorithm.take(slot.state, rules[i], cost), true
      end
    end
  end

  -- What passed waits for nothing.
  if allowed == 1 then cost = 0 end
  said = said + 1
  reply[said] = allowed
  for i = 1, count do
    reply[said + 1], reply[said + 2], reply[said + 3] = judged[i].algorithm.view(judged[i], rules[i], cost)
    said = said + 3
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
