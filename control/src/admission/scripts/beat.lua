-- A node lives: the counts can be trusted for a while longer, unless they could not be before.
if not is_warm() then
  return { 'cold' }
end
redis.call('PEXPIRE', EPOCH, EPOCH_MS)
return { 'warm' }
