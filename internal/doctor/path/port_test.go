package path

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A process without CAP_NET_BIND_SERVICE may listen only on high ports.
func TestLowPortsRequireACapability(t *testing.T) {
	if text, err := os.ReadFile(firstOpenPort); err != nil || strings.TrimSpace(string(text)) != "1024" {
		t.Fatalf("%s has %q, want 1024: %v", firstOpenPort, text, err)
	}
	done := make(chan [2]bool)
	go func() {
		runtime.LockOSThread() // the thread with the changed capabilities ends with the goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var sets [2]unix.CapUserData
		if err := unix.Capget(&header, &sets[0]); err != nil {
			t.Error(err)
		}
		sets[0].Effective &^= 1 << unix.CAP_NET_BIND_SERVICE
		if err := unix.Capset(&header, &sets[0]); err != nil {
			t.Error(err)
		}
		done <- [2]bool{mayListen(111), mayListen(2049)}
	}()
	if got := <-done; got != [2]bool{false, true} {
		t.Errorf("without the capability: got %v for ports 111 and 2049, want false and true", got)
	}
	if os.Geteuid() == 0 && !mayListen(111) {
		t.Error("root may not listen on port 111")
	}
}
