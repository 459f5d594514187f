-- Takes away what has run out and lists what is held: lease owner state age left, for each. A clock that
-- was set back makes old leases of those that it took in its future.
local now = clock()
reap(now)
local all = { 'ok' }
for _, lease in ipairs(redis.call('ZRANGEBYSCORE', POOL, '(' .. text(now), '+inf')) do
  local entry = read(lease)
  if entry then
    all[#all + 1] = lease
    all[#all + 1] = entry.owner
    all[#all + 1] = entry.state
    all[#all + 1] = text(math.abs(now - tonumber(entry.since)))
    all[#all + 1] = text(entry.till - now)
  end
end
return all
