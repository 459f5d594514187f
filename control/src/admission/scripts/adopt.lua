-- Makes a lease live for this owner: a pending one of anybody, or its own. ARGV: a live wish.
local now = clock()
local w = wish()
reap(now)
if is_gone(w.lease, now) then
  return { 'duplicate' }
end
local entry = held(w.lease, now)
if not entry then
  -- It ran out, or the server forgot it: taken anew within the caps.
  if not is_warm() then
    return { 'cold' }
  end
  return take(w, now)
end
if entry.owner ~= w.owner then
  if entry.state == 'live' then
    return { 'duplicate' }
  end
  -- The counts of account and pool stay as they are; the node's changes hands.
  local refusal = node_full(w, now)
  if refusal then
    return refusal
  end
end
put(w.lease, w, w.ttl, now)
return { 'ok' }
