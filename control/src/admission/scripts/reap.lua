-- Takes away what has run out and lists what is held: lease owner state age, for each.
local now = clock()
reap(now)
local all = { 'ok' }
for _, lease in ipairs(redis.call('ZRANGEBYSCORE', POOL, '(' .. text(now), '+inf')) do
  local entry = read(lease)
  if entry then
    all[#all + 1] = lease
    all[#all + 1] = entry.owner
    all[#all + 1] = entry.state
    all[#all + 1] = text(now - tonumber(entry.since))
  end
end
return all
