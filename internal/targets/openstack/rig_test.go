package openstack

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	lab "github.com/decamp/decamp/internal/lab/openstack"
	"github.com/decamp/decamp/internal/sleep"
)

// serve starts a cloud that ends with the test.
func serve(t *testing.T, c lab.Config) *lab.Cloud {
	t.Helper()
	cloud := lab.Start(c)
	t.Cleanup(cloud.Close)
	return cloud
}

// environmentOf has clouds.yaml found for a cloud, and no other.
func environmentOf(t *testing.T, cloud *lab.Cloud) {
	t.Helper()
	folder := t.TempDir()
	ca := filepath.Join(folder, "ca.pem")
	write(t, ca, cloud.CA())
	write(t, filepath.Join(folder, "clouds.yaml"), cloud.CloudsYAML(ca))
	for _, name := range []string{"OS_CLOUD", "OS_AUTH_URL", "OS_CACERT", "OS_REGION_NAME", "OS_INTERFACE"} {
		t.Setenv(name, "")
	}
	t.Setenv("OS_CLIENT_CONFIG_FILE", filepath.Join(folder, "clouds.yaml"))
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// quick is Options.Wait that waits for next to nothing.
func quick(ctx context.Context, _ time.Duration) error { return sleep.For(ctx, time.Microsecond) }

// place returns a Platform at the cloud, by the name lab, which waits no longer than it must.
func place(t *testing.T, cloud *lab.Cloud, address string) *Platform {
	t.Helper()
	environmentOf(t, cloud)
	p, err := New(address, Options{Network: "lan", Wait: quick})
	if err != nil {
		t.Fatal(err)
	}
	return p
}
