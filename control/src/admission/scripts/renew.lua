-- Prolongs leases of one owner, and takes up again what this server does not know: the calls live,
-- whatever the caps say. ARGV: part owner, then lease account agent trunk state ttl for each.
--
-- A node that finds the server cold tells it all that it holds, in parts of a bounded size: `first`,
-- `next`, `last`, or `only`. The owner is noted as back with the last one, unless the server forgot
-- the first in between. `plain` is the ordinary renewal.
local now = clock()
local part, owner = ARGV[1], ARGV[2]
local telling = key('telling', owner)
reap(now)
if part == 'first' then
  redis.call('SET', telling, '1', 'PX', EPOCH_MS)
elseif (part == 'next' or part == 'last') and redis.call('EXISTS', telling) == 0 then
  return { 'again' }
end
for at = 3, #ARGV, 6 do
  local lease, state = ARGV[at], ARGV[at + 4]
  local entry = held(lease, now)
  local foreign = entry and entry.state == 'live' and entry.owner ~= owner
  -- Who only waits takes nothing over and prolongs nothing.
  local known = entry and state ~= 'live'
  if not foreign and not known and not is_gone(lease, now) then
    local agent, trunk = ARGV[at + 2], ARGV[at + 3]
    -- Who renews for another does not know its agent and trunk.
    if entry then
      agent = agent ~= '' and agent or entry.agent
      trunk = trunk ~= '' and trunk or entry.trunk
    end
    put(lease, {
      owner = owner, account = ARGV[at + 1], agent = agent, trunk = trunk, state = state,
    }, tonumber(ARGV[at + 5]), now)
  end
end
if part == 'last' or part == 'only' then
  redis.call('DEL', telling)
  local back = key('back', identity())
  redis.call('SADD', back, owner)
  redis.call('PEXPIRE', back, 3 * EPOCH_MS)
end
return { 'ok' }
