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

// patience is how long anything may take on a busy machine before a test gives it up.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(victimEnv) != "" {
		if err := beVictim(); err != nil {
			fmt.Fprintln(os.Stderr, "victim:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(run(m))
}

// scratch is a folder for what all tests share.
var scratch string

func run(m *testing.M) int {
	flag.Parse()
	if testing.Short() {
		fmt.Println("left out under -short: these tests start servers and kill them")
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

// Environment variables that say how much is tested, and repeat what failed.
const (
	killsEnv = "KILLS" // how often the server dies in each of the tests of its death
	seedEnv  = "SEED"  // one seed alone
)

// kills is how often the server dies where nobody says so: quick, or long with -tags slow.
func kills(t *testing.T, quick, long int) int {
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

// eachSeed runs one seed after the other, each of which tells how often the server died,
// until that was often enough.
func eachSeed(t *testing.T, often int, run func(t *testing.T, seed uint64) int) {
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
					t.Logf("repeat it: %s=%d go test ./test/nfs -run '^%s$' -count 1", seedEnv, seed, parent(t))
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

// parent is the name of the test that a seed belongs to.
func parent(t *testing.T) string {
	name := t.Name()
	for i := range name {
		if name[i] == '/' {
			return name[:i]
		}
	}
	return name
}

// generator returns the random numbers of a seed, for one purpose.
func generator(seed, purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, purpose)) }

// Purposes of random numbers.
const (
	forProgram = iota
	forDeath
	forMedium
	forAddress
)
