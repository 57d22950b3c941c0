# Reads the output of go test -v and prints each failed test with its output, or the end of a long one. For a package
# that failed without a failed test, after a panic or a timeout, it prints the end of the package's output.

function most() { return 40 }

function keep(name, line) {
	n = ++count[name]
	text[name, n % most()] = line
}

function show(name,    i) {
	for (i = count[name] < most() ? 1 : count[name] - most() + 1; i <= count[name]; i++)
		print "    " text[name, i % most()]
}

function forget() {
	delete text; delete count; delete failed
	failures = panicked = 0; test = ""
}

{ keep("", $0) }
/^=== (RUN|CONT|NAME|PAUSE) / { test = $3; next }
/^ *--- FAIL: / {
	failed[++failures] = $3
	next
}
/^ *--- (PASS|SKIP): |^(PASS|FAIL)$/ { next }
/^panic: / { panicked = 1 }
/^(ok|\?) *\t/ { forget(); next }
/^FAIL\t/ {
	print
	for (f = 1; f <= failures; f++) {
		print "  " failed[f]
		show(failed[f])
	}
	if (failures == 0 || panicked)
		show("")
	forget()
	next
}
test != "" { keep(test, $0) }
