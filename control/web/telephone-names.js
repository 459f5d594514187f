// Trunks and numbers as a person calls them, and the way between their pages.

import { all } from './api.js';
import { h } from './dom.js';

export const TYPES = [['inbound', 'Calls in'], ['outbound', 'Calls out']];
export const MODES = [['digest', 'User name and password'], ['ip_acl', 'Addresses'], ['digest_plus_ip_acl', 'Addresses and a password'], ['register', 'We register with the carrier']];
export const TRANSPORTS = [['udp', 'UDP'], ['tcp', 'TCP'], ['tls', 'TLS']];
export const ENCRYPTIONS = [['allow', 'As the other side wants'], ['require', 'Always'], ['disable', 'Never']];
export const FORMATS = [['e164', 'With the plus: +4930123456'], ['digits', 'Digits alone: 4930123456'], ['national', 'Within one country: 030123456']];
export const FALLBACKS = [['voicemail', 'Take a message'], ['forward', 'Forward the call'], ['hangup', 'Ring, then hang up']];
export const SOURCES = [['manual', 'Added here'], ['person_request', 'The person asked'], ['sms_stop', 'Texted STOP']];

/** The name of a word of the API. */
export const named = (names, word) => names.find(([value]) => value === word)?.[1] ?? word;

/** `Rings 30 s, then hangs up`. */
export function unanswered(rules) {
  if (!rules) return 'Refuses the call';
  const then = { voicemail: 'takes a message', forward: `forwards to ${rules.fallback_number}`, hangup: 'hangs up' }[rules.fallback_action];
  return `Rings ${rules.max_ring_seconds ?? 30} s, then ${then}`;
}

/** `Only +49, +33`. */
export function callable(list) {
  if (!list) return 'Every number';
  const entries = list.entries.length > 0 ? list.entries.join(', ') : 'none';
  return `${list.mode === 'allowlist' ? 'Only' : 'All but'} ${entries}`;
}

// RFC 3261, section 21: those that carriers end calls with.
const CODES = { 200: 'OK', 400: 'Bad Request', 401: 'Unauthorized', 403: 'Forbidden', 404: 'Not Found', 407: 'Proxy Authentication Required', 408: 'Request Timeout', 410: 'Gone', 480: 'Temporarily Unavailable', 482: 'Loop Detected', 483: 'Too Many Hops', 484: 'Address Incomplete', 486: 'Busy Here', 487: 'Request Terminated', 488: 'Not Acceptable Here', 500: 'Server Internal Error', 502: 'Bad Gateway', 503: 'Service Unavailable', 504: 'Server Time-out', 600: 'Busy Everywhere', 603: 'Decline', 604: 'Does Not Exist Anywhere' };

/** `486 Busy Here`. */
export const sipCode = (code) => [code, CODES[code]].filter(Boolean).join(' ');

const WAYS = [['numbers', 'Phone numbers'], ['trunks', 'Trunks'], ['suppressions', 'Suppressions']];

/** The pages of the telephone. */
export const ways = (current) => h('nav.ways', { 'aria-label': 'Telephone' },
  WAYS.map(([page, name]) => h('a', { href: `#/${page}`, 'aria-current': page === current ? 'page' : null }, name)));

/** The items of a list, all of them; none where the key may not see them. */
export const seen = (api, path, signal) =>
  all((page) => api.get(page, { signal }), path).catch((error) => { if (error.status === 403) return []; throw error; });
