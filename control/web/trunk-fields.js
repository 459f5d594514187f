// Every setting of a trunk, in the groups of its forms; as in agent-fields.js. Names, ranges and meanings are
// the API's.

import { ENCRYPTIONS, FORMATS, MODES, TRANSPORTS, TYPES } from './telephone-names.js';

const NAME = { name: 'name', kind: 'text', label: 'Name', unset: null, required: true, placeholder: 'the carrier, the office…' };
const ADDRESS = { name: 'outbound_address', kind: 'text', label: 'Address', unset: null, required: true, placeholder: 'sip.example.com', hint: 'A host, or host:port.' };
const USERNAME = { name: 'auth_username', kind: 'text', label: 'User name', unset: null, required: true };
const PASSWORD = { name: 'auth_password', kind: 'secret', label: 'Password', unset: null, required: true, hint: 'Kept encrypted, and never shown again.' };
const MD5 = { name: 'allow_md5_without_qop', kind: 'flag', label: 'Answer MD5 without qop', unset: false, hint: 'For carriers of an older make. Whoever sees such an answer may try passwords on it with tables made before.' };
const TRANSPORT = { name: 'transport', kind: 'choice', label: 'SIP goes over', options: TRANSPORTS, unset: 'udp' };
const ENCRYPTION = { name: 'media_encryption', kind: 'choice', label: 'Encrypts the sound (SRTP)', options: ENCRYPTIONS, unset: 'allow', hint: 'Only with TLS are its keys hidden as well.' };
const NUMBERS = { name: 'numbers', kind: 'lines', label: 'Numbers', unset: [] };
const ADDRESSES = { name: 'allowed_addresses', kind: 'lines', label: 'Addresses that calls come from', unset: [], placeholder: '203.0.113.7\n198.51.100.0/24', hint: 'Public IPv4 addresses, or blocks of /24 to /32; IPv6 ones where the deployment allows them; one a line.' };

const asksPassword = ({ auth_mode: mode }) => mode !== 'ip_acl';
const asksAddresses = ({ type, auth_mode: mode }) => type !== 'outbound' && (mode === 'ip_acl' || mode === 'digest_plus_ip_acl');
const registers = ({ auth_mode: mode }) => mode === 'register';
const mode = (options, more = {}) => ({ name: 'auth_mode', kind: 'choice', label: 'Known by', options, unset: 'digest', always: true, decides: true, ...more });
const credentials = [{ ...USERNAME, when: asksPassword }, { ...PASSWORD, when: asksPassword }, { ...MD5, when: asksPassword }];

const LIMITS = [
  { name: 'max_concurrent_calls', kind: 'number', label: 'Calls at the same time', min: 1, step: 1, placeholder: '10', unset: null },
  { name: 'calls_per_hour_limit', kind: 'number', label: 'Calls placed in an hour', min: 1, step: 1, placeholder: 'no limit', unset: null },
  { name: 'outbound_dial_format', kind: 'choice', label: 'Numbers are dialled as', options: FORMATS, unset: 'e164' },
  { name: 'follow_redirects', kind: 'flag', label: 'Follow redirections', unset: false, hint: 'A call that the carrier sends elsewhere is placed anew, at most twice, where the trunk may call.' },
  { name: 'destination_allowlist', kind: 'destinations', label: 'May call', unset: null, wide: true },
];
const BOUNDS = { id: 'limits', title: 'Limits', lead: 'What a leaked key or a mistake can cost at most.', fields: LIMITS };

/** A carrier with its numbers, all or nothing. */
export const ONBOARD = [
  { id: 'carrier', title: 'The carrier', lead: 'Where calls that agents place go.', fields: [NAME, ADDRESS, TRANSPORT, ENCRYPTION] },
  { id: 'known', title: 'How it knows us', lead: 'As the carrier’s portal says.', fields: [mode(MODES.slice(0, 3), { wide: true }), ...credentials] },
  {
    id: 'numbers', title: 'Its numbers', lead: 'Registered together with the trunk: all of them, or nothing is made.',
    fields: [
      { ...NUMBERS, wide: true, required: true, placeholder: '+4930123456\n+4930123457', hint: 'With plus and country, or digits alone, as the carrier wants to see them; one a line.' },
      { name: 'agent_id', kind: 'one', from: 'agents', label: 'Answered by', none: 'Nobody', unset: null, hint: 'Calls in are taken from the same host; those from elsewhere take a trunk for calls in.' },
      { name: 'outbound_enabled', kind: 'flag', label: 'Calls may be placed from them', unset: true },
      { name: 'inbound', kind: 'routing', label: 'When no agent can answer', unset: null },
    ],
  },
  { ...BOUNDS, fields: [...LIMITS, { name: 'set_as_tenant_default', kind: 'flag', label: 'Default outbound trunk', unset: false, hint: 'Taken where neither number nor agent names a trunk.' }] },
];

/** A trunk by itself, with everything that one can say. */
export const NEW = [
  { id: 'which', title: 'Which way', fields: [NAME, { name: 'type', kind: 'choice', label: 'For', options: TYPES, unset: 'inbound', always: true, decides: true }] },
  {
    id: 'known', title: 'Access', lead: 'Calls from anywhere else hear nothing.',
    fields: [
      mode(MODES, { wide: true, offers: (option, { type }) => option !== 'register' || type === 'inbound' }),
      ...credentials,
      { ...ADDRESSES, wide: true, when: asksAddresses },
      { ...ADDRESS, wide: true, hint: 'The carrier’s host, or host:port; where we register, the registrar’s.', when: (values) => values.type === 'outbound' || registers(values) },
    ],
  },
  {
    id: 'register', title: 'Registration', lead: 'Kept up by this server; other nodes take over.', when: registers,
    fields: [
      { name: 'realm', kind: 'text', label: 'Domain', unset: null, placeholder: 'the host of the registrar' },
      { name: 'register_expires', kind: 'number', label: 'Renewed within, seconds', min: 30, max: 3600, step: 1, placeholder: '120', unset: null },
      { name: 'outbound_auth', kind: 'choice', label: 'Placed calls go', options: [['proxy', 'Through the registrar'], ['direct', 'To the host of the number']], unset: 'proxy' },
      { name: 'outbound_from_user', kind: 'choice', label: 'Who calls, for the carrier', options: [['number', 'The number'], ['username', 'The user name']], unset: 'number', hint: 'It never changes afterwards.' },
    ],
  },
  {
    id: 'line', title: 'The line',
    fields: [TRANSPORT, ENCRYPTION, { ...NUMBERS, label: 'Wire numbers', wide: true, hint: 'Calls in: the called numbers that are taken, as the carrier writes them; none for all. Calls out: the first is presented. One a line.' }],
  },
  BOUNDS,
];

/** What of a trunk can be changed. */
export const change = ({ type, auth_mode: kept }) => [
  {
    id: 'which', title: 'The trunk',
    fields: [{ ...NAME, wide: true }, type === 'inbound' && { ...NUMBERS, label: 'Wire numbers', wide: true, hint: 'The called numbers that are taken, as the carrier writes them; none for all. One a line.' }].filter(Boolean),
  },
  type === 'inbound' && {
    id: 'known', title: 'Access', lead: 'Calls from anywhere else hear nothing.',
    fields: [
      mode(MODES.filter(([value]) => (value === 'register') === (kept === 'register')), { always: false, wide: true }),
      { ...USERNAME, when: asksPassword },
      { ...PASSWORD, required: false, hint: 'Typed again where the user name or the way changes; it is never shown.', when: asksPassword },
      { ...MD5, when: asksPassword },
      { ...ADDRESSES, wide: true, when: asksAddresses },
    ],
  },
  type === 'outbound' && kept !== 'ip_acl' && { id: 'known', title: 'How the carrier knows us', fields: [{ ...MD5, wide: true }] },
  BOUNDS,
].filter(Boolean);
