// Times, lengths and names as a person reads them.

export const DASH = '–';

/** `18 Nov, 14:05`, with the year when it is another one. */
export function when(iso) {
  if (!iso) return DASH;
  const at = new Date(iso);
  const year = at.getFullYear() === new Date().getFullYear() ? {} : { year: 'numeric' };
  return at.toLocaleString(undefined, { day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit', ...year });
}

/** `1:04`, `1:02:03`. */
export function length(seconds) {
  if (!Number.isFinite(seconds)) return DASH;
  const whole = Math.floor(seconds);
  const two = (value) => String(value).padStart(2, '0');
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor(whole / 60) % 60;
  return hours > 0 ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
}

export const ms = (value) => (Number.isFinite(value) ? `${Math.round(value)} ms` : DASH);
export const percent = (value) => (Number.isFinite(value) ? `${value.toFixed(value < 10 ? 1 : 0)} %` : DASH);
export const count = (value) => (Number.isFinite(value) ? value.toLocaleString(undefined, { maximumFractionDigits: value < 100 ? 1 : 0 }) : DASH);
export const money = (cents) => (Number.isFinite(cents) ? (cents / 100).toLocaleString(undefined, { minimumFractionDigits: 2, maximumFractionDigits: 2 }) : DASH);

export function bytes(value) {
  if (!Number.isFinite(value)) return DASH;
  const units = ['B', 'KiB', 'MiB', 'GiB'];
  const power = Math.min(units.length - 1, Math.floor(Math.log2(Math.max(1, value)) / 10));
  const shown = value / 1024 ** power;
  return `${shown.toFixed(shown < 10 && power > 0 ? 1 : 0)} ${units[power]}`;
}

/** `caller_hangup` as `caller hangup`. */
export const words = (slug) => (slug ? String(slug).replaceAll('_', ' ') : DASH);
/** The same with a capital. */
export const title = (slug) => (slug ? words(slug)[0].toUpperCase() + words(slug).slice(1) : DASH);
