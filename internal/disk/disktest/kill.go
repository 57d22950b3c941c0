package disktest

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// victimEnv is the environment variable with the path of the image that a victim writes.
const victimEnv = "DISKTEST_VICTIM"

// MainWithVictim is the body of a TestMain: it turns the test binary, started by
// KillVictim, into a process that writes the image at path until it is killed. write
// calls Step before each of its steps.
func MainWithVictim(m *testing.M, write func(path string) error) {
	if path := os.Getenv(victimEnv); path != "" {
		fmt.Println(write(path))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// Step reports to KillVictim that the victim begins its next step.
func Step() { fmt.Println(".") }

// KillVictim runs a victim on the image at path, and kills it with SIGKILL after that many steps.
func KillVictim(t *testing.T, path string, steps int) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), victimEnv+"="+path)
	out, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	told := make([]byte, 2)
	for range steps {
		if _, err := out.Read(told); err != nil || told[0] != '.' {
			t.Errorf("the victim printed %q, %v", told, err)
			break
		}
	}
	if err := child.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = child.Wait() // killed, it always fails
}
