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

-- Reads a key once; later Limits of the same call see what earlier ones left.
local slots = {}
local function slot_of(index, algorithm, rule)
  local slot = slots[index]
  if not slot then
    slot = {
      key = KEYS[index], algorithm = algorithm, state = nil,
      -- What was found: not ours, ahead of the clock, a log of which nothing counts, the newest hit of one that does.
      foreign = false, ahead = false, stale = false, newest = false, newest_time = false,
      -- What was done: anything that may write, a reset, a change of the state.
      touched = false, reset = false, changed = false,
    }
    slots[index] = slot
    slot.state = algorithm.read(slot, rule)
  end
  return slot
end

local reply = { 0, 0 }
local said = 2
local position = 3
while ARGV[position] do
  local amount, count = ARGV[position] + 0, ARGV[position + 1] + 0
  position = position + 2
  local judged = {}
  for i = 1, count do
    local algorithm = algorithms[ARGV[position + 1]]
    local rule = { ARGV[position + 2] + 0, ARGV[position + 3] + 0, ARGV[position + 4] + 0, ARGV[position + 5] + 0 }
    judged[i] = { slot = slot_of(ARGV[position] + 0, algorithm, rule), rule = rule, algorithm = algorithm }
    position = position + 6
  end

  local cost = 1
  if operation == 'check' then cost = amount end
  for i = 1, count do
    local it = judged[i]
    local slot = it.slot
    -- A peek, and the refund of nothing, write nothing: not even what they would mend.
    slot.touched = slot.touched or operation == 'check' or operation == 'reset' or (operation == 'refund' and amount > 0)
    if operation == 'reset' then
      slot.state, slot.reset = nil, true
    elseif operation == 'refund' and amount > 0 and slot.state then
      local left = it.algorithm.give(slot.state, it.rule, amount)
      slot.changed = slot.changed or left ~= slot.state
      slot.state = left
    end
  end

  local allowed = 1
  for i = 1, count do
    local it = judged[i]
    if cost > 0 and not it.algorithm.passes(it.slot.state, it.rule, cost) then allowed = 0 end
  end
  if operation == 'check' and allowed == 1 and cost > 0 then
    for i = 1, count do
      local it = judged[i]
      it.slot.state = it.algorithm.take(it.slot.state, it.rule, cost)
      it.slot.changed = true
    end
  end

  -- What passed waits for nothing.
  if allowed == 1 then cost = 0 end
  said = said + 1
  reply[said] = allowed
  for i = 1, count do
    local it = judged[i]
    reply[said + 1], reply[said + 2], reply[said + 3] = it.algorithm.view(it.slot, it.rule, cost)
    said = said + 3
  end
end

-- A log takes several commands. Where it is not alone, the rights to them are tried before the first write.
local writing = {}
for i = 1, #KEYS do
  local slot = slots[i]
  if slot.touched then
    if slot.foreign or slot.ahead then healed = healed + 1 end
    if slot.state and (slot.changed or slot.ahead) then
      writing[#writing + 1] = slot
      if #KEYS > 1 and slot.algorithm.rehearse and not slot.foreign then slot.algorithm.rehearse(slot) end
    elseif slot.foreign or slot.reset or slot.changed then
      call('UNLINK', slot.key)
    end
  end
end
for several = 0, 1 do
  for i = 1, #writing do
    local slot = writing[i]
    if (slot.algorithm.rehearse ~= nil) == (several == 1) then
      if slot.foreign or slot.reset or slot.stale then call('UNLINK', slot.key) end
      slot.algorithm.write(slot)
    end
  end
end
reply[1], reply[2] = now, healed
return reply
