-- Opens a cold server once all live nodes are back. ARGV: `ask` or `open`, how many owners, the
-- owners; then, for the calls that the database says are open, lease owner account state ttl each.
if is_warm() then
  return { 'warm' }
end
local now = clock()
local back = key('back', identity())
local owners = tonumber(ARGV[2])
for at = 3, 2 + owners do
  if redis.call('SISMEMBER', back, ARGV[at]) == 0 then
    return { 'cold', ARGV[at] }
  end
end
if ARGV[1] == 'ask' then
  return { 'back' }
end
for at = 3 + owners, #ARGV, 5 do
  local lease = ARGV[at]
  if not held(lease, now) and not is_gone(lease, now) then
    put(lease, {
      owner = ARGV[at + 1], account = ARGV[at + 2], agent = '', trunk = '', state = ARGV[at + 3],
    }, tonumber(ARGV[at + 4]), now)
  end
end
redis.call('SET', EPOCH, identity(), 'PX', EPOCH_MS)
-- When it is cold again, who told it this time has to tell it anew: a node that sleeps then may have
-- taken calls meanwhile.
redis.call('DEL', back)
return { 'warm' }
