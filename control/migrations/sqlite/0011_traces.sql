-- The W3C traceparent that came with connect, where calls are traced.
alter table sessions add column traceparent text;
