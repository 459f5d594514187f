# run   set up, build, start the server, place a demo call, serve
# test  set up, format check, lints, every test
# bench criterion benches of the way of an audio frame
# load  capacity run: server on one core, load generator on another
# fuzz  what strangers' bytes reach first, a minute each
# soak  the long bars: a bare machine, the question set, the full load; red when one fails

.PHONY: run test bench load fuzz soak setup setup-fuzz setup-test setup-soak

run: setup
	@bash scripts/run.sh

test:
	@bash scripts/test.sh

bench: setup
	cargo bench -p sidetone-benches

load: setup
	@bash scripts/load.sh

fuzz: setup-fuzz
	@bash scripts/fuzz.sh

soak: setup-soak
	@bash scripts/soak.sh

setup:
	@bash scripts/setup.sh run

setup-fuzz:
	@bash scripts/setup.sh fuzz

setup-test:
	@bash scripts/setup.sh test

setup-soak:
	@bash scripts/setup.sh soak
