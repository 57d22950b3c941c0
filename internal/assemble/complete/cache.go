// Package complete finds the words that a shell completes: sources, their VMs and datastores, runs, and targets. It
// never prompts, accepts no certificate, and is silent on errors.
package complete

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/fault"
)

// The ages of cached words, and the time limit of a request.
const (
	freshTime = 5 * time.Minute // words of a source or a target that are not older are returned without a request
	fleetTime = 5 * time.Second // the same for words of a fleet, which commands change
	staleTime = 24 * time.Hour  // words of this age are returned if a request fails
	retryTime = time.Minute     // time between two requests that fail: each may cost a login
	limit     = 200 * time.Millisecond
)

// Cache keeps words in files of the user, because a shell starts a process for each completion.
type Cache struct {
	Dir   string                               // folder of the files; empty: nothing is kept
	Now   func() time.Time                     // time.Now, if tests do not replace it
	After func(time.Duration) <-chan time.Time // time.After, if tests do not replace it
}

// NewCache returns the cache of the current user.
func NewCache() *Cache {
	c := &Cache{Now: time.Now, After: time.After}
	if dir, err := os.UserCacheDir(); err == nil {
		c.Dir = filepath.Join(dir, "decamp", "completion")
	}
	return c
}

// entry is the content of a file.
type entry struct {
	Words []string  `json:"words"` // last words
	At    time.Time `json:"at"`    // time of the words; zero if there are none
	Tried time.Time `json:"tried"` // time of the last request
}

// Words returns the words of a source or a target, which fetch requests if they are not fresh. It returns in time
// also if fetch does not.
func (c *Cache) Words(ctx context.Context, key string, fetch func(context.Context) ([]string, error)) []string {
	return c.wordsNewerThan(ctx, freshTime, key, fetch)
}

// FleetWords is Words for a fleet.
func (c *Cache) FleetWords(ctx context.Context, key string, fetch func(context.Context) ([]string, error)) []string {
	return c.wordsNewerThan(ctx, fleetTime, key, fetch)
}

// wordsNewerThan is Words for words that are fresh until they have an age.
func (c *Cache) wordsNewerThan(ctx context.Context, age time.Duration, key string, fetch func(context.Context) ([]string, error)) []string {
	e, now := c.load(key), c.Now()
	switch {
	case now.Sub(e.At) < age:
		return e.Words
	case e.Tried.After(e.At) && now.Sub(e.Tried) < retryTime:
		return e.recent(now)
	}
	e.Tried = now
	c.save(key, e) // before the request: a process that is killed must not repeat it at once
	if words, ok := c.limited(ctx, fetch); ok {
		c.Store(key, words)
		return words
	}
	return e.recent(now)
}

// limited returns the words of fetch. ok is false if it fails, or does not return in time.
func (c *Cache) limited(ctx context.Context, fetch func(context.Context) ([]string, error)) (words []string, ok bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan []string, 1)
	go func() {
		words, err := fetch(ctx)
		if err != nil {
			close(done)
			return
		}
		done <- Plain(words)
	}()
	select {
	case words, ok = <-done:
		return words, ok
	case <-c.After(limit):
		return nil, false
	}
}

// Store replaces the words of a key, for commands that have read them.
func (c *Cache) Store(key string, words []string) {
	now := c.Now()
	c.save(key, entry{Words: Plain(words), At: now, Tried: now})
}

// recent returns the words of e unless they are too old.
func (e entry) recent(now time.Time) []string {
	if now.Sub(e.At) < staleTime {
		return e.Words
	}
	return nil
}

// path returns the file of a key, whose name contains no text of the key.
func (c *Cache) path(key string) string {
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(c.Dir, hex.EncodeToString(sum[:16])+".json")
}

// load returns the entry of a key; an empty one if it cannot be read.
func (c *Cache) load(key string) (e entry) {
	if text, err := os.ReadFile(c.path(key)); err != nil || json.Unmarshal(text, &e) != nil {
		return entry{}
	}
	return e
}

// save writes an entry. It ignores errors: the next completion then requests the words again.
func (c *Cache) save(key string, e entry) {
	if c.Dir == "" || os.MkdirAll(c.Dir, 0o700) != nil {
		return
	}
	if text, err := json.Marshal(e); err == nil {
		_ = atomicfile.Replace(c.path(key), text, 0o600)
	}
}

// Plain returns the words that mean the same with and without a shell's expansions, sorted. bash expands
// the words that it completes, and a source may contain a VM named $(reboot).
func Plain(words []string) []string {
	var plain []string
	for _, w := range words {
		if w != "" && w[0] != '-' && fault.Quote(w) == w {
			plain = append(plain, w)
		}
	}
	slices.Sort(plain)
	return slices.Compact(plain)
}

// NameOrRef returns the name of a VM, or its reference if a shell would change the name.
func NameOrRef(name, ref string) string {
	if len(Plain([]string{name})) == 0 {
		return ref
	}
	return name
}
