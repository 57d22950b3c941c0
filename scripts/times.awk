# Reads the output of go test -v and prints one line for each package and each test of the first level:
# seconds, package, and the name of the test, which is empty for the package. Cached results have no time.

BEGIN { FS = OFS = "\t" }

/^--- (PASS|FAIL|SKIP): / {
	split($0, word, " ")
	gsub(/[()s]/, "", word[4])
	name[++tests] = word[3]
	seconds[tests] = word[4]
	next
}
/^(ok  |FAIL)\t/ {
	if ($3 ~ /^[0-9.]+s$/) {
		print substr($3, 1, length($3) - 1), $2, ""
		for (i = 1; i <= tests; i++)
			print seconds[i], $2, name[i]
	}
	tests = 0
}
