// The one kind of error that sidetone.js throws.

/** What the server refused, or what broke: `code` is the API's slug, `status` the HTTP status (or 0). */
export class SidetoneError extends Error {
  constructor(message, { code = 'error', status = 0, retryAfter = null, requestId = null, fields = [] } = {}) {
    super(message);
    this.name = 'SidetoneError';
    Object.assign(this, { code, status, retryAfter, requestId, fields });
  }
}

/** Of a call that the page ended before it was live. */
export const hungUp = () => new SidetoneError('The call was ended', { code: 'ended' });
