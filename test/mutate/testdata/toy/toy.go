// Package toy has operators of every kind that mutate changes.
package toy

import "time"

type set bool

const limit = 4 - 1 // no mutant: the compiler evaluates it

func clamp(n, most int64) int64 {
	if n > most {
		return most
	}
	return n
}

func both(a, b bool) bool {
	return a &&
		b
}

func either(a, b bool) bool { return a || b }

func count(s []int) (n int) {
	for i := 0; i < len(s); i++ {
		if s[i]%2 == 0 && s[i] != 0 {
			n++
		}
	}
	return n
}

func scale(d time.Duration, n int) time.Duration { return -d * time.Duration(n) / 2 }

func shift(n uint) int64 { return 1<<n - 1 }

func name(err error) string {
	if err == nil {
		return "none" + "!"
	}
	return err.Error() + "!"
}

func named(a, b set) set { return a && b }

func unreached(n int) int { return n + 1 }

func difference(a, b int) int { return a - b }
