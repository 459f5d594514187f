// What is counted, as a person calls it.

import { count, title, when } from './format.js';

export const NAMES = { call_minutes: 'Call minutes', tts_characters: 'Spoken characters', transcription_seconds: 'Transcribed seconds', sms_segments: 'Text segments', chatapp_messages: 'Chat messages', llm_tokens: 'Model tokens' };

const PERIODS = { day: 'in a day', week: 'in a week', month: 'in a month', all_time: 'of all time' };

export const resource = (name) => NAMES[name] ?? title(name);

/** `1,000 call minutes in a month`, `80 % of the monthly limit of call minutes in a day`. */
export function threshold({ resource_type: what, threshold_type: kind, threshold_value: value, period }) {
  const name = resource(what).toLowerCase();
  const amount = kind === 'percent_of_limit' ? `${count(value)} % of the monthly limit of ${name}` : `${count(value)} ${name}`;
  return `${amount} ${PERIODS[period] ?? period}`;
}

/** What was counted when it fired, in the unit of the threshold. */
export const observed = ({ observed_value: value, threshold_type: kind }) => `${count(value)}${kind === 'percent_of_limit' ? ' %' : ''}`;

/** The period that it fired in. */
export const within = ({ period_started_at: from, period_ends_at: to }) => (to ? `${when(from)} – ${when(to)}` : 'All time');
