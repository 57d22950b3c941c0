package nfs

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// testTimeout is the longest time that a test waits for an operation on a busy machine.
const testTimeout = 2 * time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(victimEnv) != "" {
		if err := victimMain(); err != nil {
			fmt.Fprintln(os.Stderr, "victim:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(runTests(m))
}

// scratch is a folder that all tests share.
var scratch string

func runTests(m *testing.M) int {
	flag.Parse()
	if testing.Short() {
		fmt.Println("skipped under -short: these tests start servers and kill them")
		return 0
	}
	var err error
	if scratch, err = os.MkdirTemp("", "decamp-nfs-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(scratch)
	return m.Run()
}

// Environment variables that set the length of the tests and repeat a failure.
const (
	killsEnv = "KILLS" // number of deaths of the server in each kill test
	seedEnv  = "SEED"  // the only seed to run
)

// killCount returns the number of deaths in a test: KILLS if it is set, otherwise quick, or long with -tags slow.
func killCount(t *testing.T, quick, long int) int {
	t.Helper()
	if s := os.Getenv(killsEnv); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("%s=%s: %v", killsEnv, s, err)
		}
		return n
	}
	if slow {
		return long
	}
	return quick
}

// runSeeds runs seeds one after the other until the server has died often enough. run returns the number of deaths.
func runSeeds(t *testing.T, often int, run func(t *testing.T, seed uint64) int) {
	t.Helper()
	if s := os.Getenv(seedEnv); s != "" {
		seed, err := strconv.ParseUint(s, 0, 64)
		if err != nil {
			t.Fatalf("%s=%s: %v", seedEnv, s, err)
		}
		run(t, seed)
		return
	}
	died, began := 0, time.Now()
	seed := uint64(0)
	for ; died < often; seed++ {
		ok := t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("to repeat: %s=%d go test ./test/nfs -run '^%s$' -count 1", seedEnv, seed, topLevelTest(t))
				}
			})
			died += run(t, seed)
		})
		if !ok {
			break
		}
	}
	t.Logf("died %d times over %d disks in %v", died, seed, time.Since(began).Round(time.Second))
}

// topLevelTest returns the name of the test that a seed belongs to.
func topLevelTest(t *testing.T) string {
	name := t.Name()
	for i := range name {
		if name[i] == '/' {
			return name[:i]
		}
	}
	return name
}

// newRand returns the random number generator of a seed for one purpose.
func newRand(seed, purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, purpose)) }

// Purposes of random numbers.
const (
	forProgram = iota
	forDeath
	forMedium
	forAddress
)
