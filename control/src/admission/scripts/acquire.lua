-- Takes a lease within all caps, or says which one forbids it. ARGV: a wish.
local now = clock()
local w = wish()
reap(now)
if not is_warm() then
  return { 'cold' }
end
if is_gone(w.lease, now) then
  return { 'duplicate' }
end
local entry = held(w.lease, now)
if not entry then
  return take(w, now)
end
if entry.owner ~= w.owner then
  return { 'duplicate' }
end
-- The same owner again. A live lease does not become pending by asking twice.
if entry.state == 'live' and w.state ~= 'live' then
  w.state, w.ttl = 'live', tonumber(ARGV[13])
end
put(w.lease, w, w.ttl, now)
return { 'ok' }
