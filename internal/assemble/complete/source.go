package complete

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
)

// Keys of the cache, before the URL of a source.
const (
	vmsOf        = "vms "
	datastoresOf = "datastores "
)

// Completer returns the words of one state directory.
type Completer struct {
	Assembler *assemble.Assembler // must not prompt: its terminal is an error
	Cache     *Cache
}

// stateDir returns the state directory if it exists. It does not create it.
func (c *Completer) stateDir() (dir string, ok bool) {
	dir = c.Assembler.State
	if dir == "" {
		dir = c.Assembler.DefaultState()
	}
	st, err := os.Stat(dir)
	return dir, err == nil && st.IsDir()
}

// Sources returns the URLs of the sources of earlier runs, and of hosts whose certificate is known.
func (c *Completer) Sources() []string {
	dir, ok := c.stateDir()
	if !ok {
		return nil
	}
	var urls []string
	hasURL := map[string]bool{}
	runs, _ := journal.NewStore(dir).Runs() // those that can be read
	for _, r := range runs {
		urls = append(urls, r.Plan.Source)
		_, host, _ := strings.Cut(r.Plan.Source, "@")
		hasURL[host[strings.LastIndexByte(host, '@')+1:]] = true
	}
	known := map[string]json.RawMessage{}
	if text, err := os.ReadFile(filepath.Join(dir, "known_hosts.json")); err == nil {
		_ = json.Unmarshal(text, &known) // a damaged file has no hosts
	}
	for addr := range known {
		short := strings.TrimSuffix(addr, ":443")
		if !strings.Contains(addr, "://") && !hasURL[addr] && !hasURL[short] { // others are SSH host keys
			urls = append(urls, "esxi://root@"+short)
		}
	}
	return Plain(urls)
}

// Runs returns the IDs of runs.
func (c *Completer) Runs() []string {
	dir, ok := c.stateDir()
	if !ok {
		return nil
	}
	runs, _ := journal.NewStore(dir).Runs() // those that can be read
	ids := make([]string, len(runs))
	for i, r := range runs {
		ids[i] = string(r.Plan.ID)
	}
	return Plain(ids)
}

// VMs returns the names of a source's VMs. A name that a shell would change is replaced by its reference.
// Without a configured password, or for a host whose certificate is not known, it returns cached words only.
func (c *Completer) VMs(ctx context.Context, url, passwordFile string) []string {
	return c.Cache.Words(ctx, vmsOf+url, func(ctx context.Context) ([]string, error) {
		return c.readSource(ctx, url, passwordFile)
	})
}

// Datastores returns the names of the datastores of a source that were read before.
func (c *Completer) Datastores(url string) []string {
	return c.Cache.load(datastoresOf + url).recent(c.Cache.Now())
}

// readSource reads the words of a source, and stores the datastores.
func (c *Completer) readSource(ctx context.Context, url, passwordFile string) ([]string, error) {
	if _, ok := c.stateDir(); !ok {
		return nil, fault.New(fault.NotFound, "no certificate is known")
	}
	s, err := c.Assembler.Dial(ctx, url, assemble.Login{PasswordFile: passwordFile})
	if err != nil {
		return nil, err
	}
	var vms []inventory.VM
	var stores []inventory.Datastore
	g, each := errgroup.WithContext(ctx)
	g.Go(func() (err error) { vms, err = s.VMs(each); return err })
	g.Go(func() (err error) { stores, err = s.Datastores(each); return err })
	err = g.Wait()
	_ = s.Close() // the host ends the session later
	if err != nil {
		return nil, err
	}
	return c.Cache.StoreSource(url, vms, stores), nil
}

// StoreSource stores the words of a source that a command has read, and returns those of its VMs.
func (c *Cache) StoreSource(url string, vms []inventory.VM, stores []inventory.Datastore) []string {
	words := make([]string, len(vms))
	for i, vm := range vms {
		words[i] = NameOrRef(vm.Name, string(vm.Ref))
	}
	c.Store(vmsOf+url, words)
	names := make([]string, len(stores))
	for i, d := range stores {
		names[i] = d.Name
	}
	c.Store(datastoresOf+url, names)
	return words
}
