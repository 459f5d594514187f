// The one kind of error that sidetone.js throws.

/** What the server refused, or what broke: `code` is the API's slug, `status` the HTTP status (or 0). */
export class SidetoneError extends Error {
  constructor(message, { code = 'error', status = 0, retryAfter = null, requestId = null, fields = [], cause } = {}) {
    super(message, { cause });
    this.name = 'SidetoneError';
    Object.assign(this, { code, status, retryAfter, requestId, fields });
  }
}

/** What a browser throws, as one of ours. */
export const known = (error) =>
  (error instanceof SidetoneError ? error : new SidetoneError(error?.message || String(error), { cause: error }));

/** Of a call that the page ended before it was live. */
export const hungUp = () => new SidetoneError('The call was ended', { code: 'ended' });
