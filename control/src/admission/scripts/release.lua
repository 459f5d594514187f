-- Gives a lease back. ARGV: lease owner, how long it cannot be taken again (a request of the past may
-- still be on its way). A live lease of another owner stays; a pending one belongs to its session.
local now = clock()
local lease, owner, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3])
local entry = read(lease)
if entry then
  if entry.till > now and entry.state == 'live' and entry.owner ~= owner then
    return { 'other' }
  end
  remove(lease, entry)
end
redis.call('SET', key('gone', lease), text(now + ttl), 'PX', KEEP_MS)
return { 'ok' }
