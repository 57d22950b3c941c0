package tagging

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"
	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

const (
	// tagPage is the number of VMs per query. No limit is documented.
	tagPage = 200

	// tagSplits limits how often a refused page is queried again in halves. One VM that
	// was removed, or that the user may not see, makes the whole query fail.
	tagSplits = 20

	// tagCalls is the number of concurrent calls for names. With about 20 ms per call,
	// the rate is well below the limit of the service.
	tagCalls = 4

	// tagNamesLife is how long the name of a tag is cached.
	tagNamesLife = 10 * time.Minute
)

// AddTags sets the tags of VMs, and adds a warning to VMs whose tags cannot be read.
// For v VMs with t different tags of c categories it needs
//
// ⌈v/200⌉ + t + c
//
// calls, plus one for the first login. A name that was read less than ten minutes ago
// needs no call. The service has no call for the names of several tags. Tags without
// such a VM cost nothing.
func (t *Service) AddTags(ctx context.Context, vms []inventory.VM) {
	r := &tagReading{service: t, attached: map[inventory.MoRef][]string{}, refused: map[inventory.MoRef]error{}, splits: tagSplits}
	err := t.withService(ctx, func(ctx context.Context) error {
		for page := range slices.Chunk(vms, tagPage) {
			if err := r.readTags(ctx, page); err != nil {
				return err
			}
		}
		if err := r.readNames(ctx); err != nil {
			return err
		}
		for i := range vms {
			vms[i].Tags = t.tagsOf(r.attached[vms[i].Ref])
		}
		return nil
	})
	for i := range vms {
		// An error of the service concerns all VMs; a refusal only one.
		if why := cmp.Or(err, r.refused[vms[i].Ref]); why != nil {
			vms[i].Warnings = append(vms[i].Warnings, inventory.Warning{
				Code: inventory.WarnTags, Text: fmt.Sprintf("its tags cannot be read, and are not migrated: %v", why), Remedy: cmp.Or(fault.HintOf(why), hint),
			})
		}
	}
}

// A tagReading collects the results for one list of VMs.
type tagReading struct {
	service  *Service                     // service to call
	attached map[inventory.MoRef][]string // IDs of the tags of each VM
	refused  map[inventory.MoRef]error    // errors of VMs whose tags could not be read
	splits   int                          // number of further splits permitted
}

// readTags reads the tags of VMs. If the service refuses the query because of one VM,
// it queries each half.
func (r *tagReading) readTags(ctx context.Context, vms []inventory.VM) error {
	found, err := r.service.listAttached(ctx, vms)
	if !rest.IsStatusError(err, http.StatusForbidden) {
		for _, f := range found {
			ref := inventory.MoRef(f.ObjectID.Reference().Value)
			r.attached[ref] = append(r.attached[ref], f.TagIDs...)
		}
		return err
	}
	// The query cannot be split further. All VMs of it get the warning.
	if len(vms) == 1 || r.splits == 0 {
		for i := range vms {
			r.refused[vms[i].Ref] = r.service.toFault(err)
		}
		return nil
	}
	r.splits--
	half := len(vms) / 2
	if err := r.readTags(ctx, vms[:half]); err != nil {
		return err
	}
	return r.readTags(ctx, vms[half:])
}

// listAttached sends one query for the tags of VMs. VMs without tags are not in the
// result. It switches to the old dialect if the server has only the new form of
// sessions.
func (t *Service) listAttached(ctx context.Context, vms []inventory.VM) (found []tags.AttachedTags, err error) {
	type object struct {
		ID   string `json:"id"`
		Type string `json:"type"`
	}
	var about struct {
		Objects []object `json:"object_ids"`
	}
	for i := range vms {
		about.Objects = append(about.Objects, object{string(vms[i].Ref), string(inventory.OnVM)})
	}
	q := query{of: "/tag-association", body: about}
	err = t.callPatiently(ctx, q, &found)
	with := t.session.Load()
	if rest.IsStatusError(err, http.StatusNotFound) && with != nil && with.dialect == newDialect {
		t.session.Store(&tagSession{with.Client, oldDialect}) // the API may be older than its sessions
		err = t.callPatiently(ctx, q, &found)
	}
	return found, err
}

// readNames reads the names of tags and then of their categories, except those in the
// cache.
func (r *tagReading) readNames(ctx context.Context) error {
	known := r.service.tagNames
	known.forgetOld(r.service.cfg.Now().Add(-tagNamesLife))
	var ids, categories []string
	for _, of := range r.attached {
		ids = append(ids, of...)
	}
	if err := r.service.nameEach(ctx, "/tag", ids, known.tags); err != nil {
		return err
	}
	for _, id := range ids {
		if t, ok := known.tags.get(id); ok {
			categories = append(categories, t.category)
		}
	}
	return r.service.nameEach(ctx, "/category", categories, known.categories)
}

// nameEach reads the names that known lacks, each once. IDs that no longer exist stay
// without a name. It sorts ids.
func (t *Service) nameEach(ctx context.Context, of string, ids []string, known *nameTable) error {
	slices.Sort(ids)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(tagCalls)
	for _, id := range slices.Compact(slices.Clone(ids)) {
		if _, ok := known.get(id); ok || id == "" {
			continue
		}
		g.Go(func() error {
			var answer tags.Tag // a category has a name, too
			err := t.callPatiently(ctx, query{of: of, id: id}, &answer)
			if rest.IsStatusError(err, http.StatusNotFound) {
				return nil
			}
			if err == nil {
				known.put(id, tagName{name: answer.Name, category: answer.CategoryID, read: t.cfg.Now()})
			}
			return err
		})
	}
	return g.Wait()
}

// tagNames contains the names of tags and categories by their IDs.
type tagNames struct{ tags, categories *nameTable }

// tagName is the cached name of a tag or category.
type tagName struct {
	name     string    // name in vCenter
	category string    // ID of a tag's category; empty for a category
	read     time.Time // time at which the name was read
}

// newTagNames returns an empty cache.
func newTagNames() tagNames { return tagNames{&nameTable{}, &nameTable{}} }

// forgetOld removes names that were read before the time.
func (n tagNames) forgetOld(before time.Time) {
	n.tags.forgetOld(before)
	n.categories.forgetOld(before)
}

// tagsOf returns the tags with these IDs, sorted by category and name. Tags that were
// deleted in the meantime are omitted.
func (n tagNames) tagsOf(ids []string) []inventory.Tag {
	var out []inventory.Tag
	for _, id := range ids {
		tag, ok := n.tags.get(id)
		category, there := n.categories.get(tag.category)
		if ok && there {
			out = append(out, inventory.Tag{Category: category.name, Name: tag.name})
		}
	}
	slices.SortFunc(out, func(a, b inventory.Tag) int {
		return cmp.Or(cmp.Compare(a.Category, b.Category), cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(out)
}

// A nameTable maps IDs to names. It is safe for concurrent use; the zero value is
// empty.
type nameTable struct {
	mu    sync.Mutex         // protects names
	names map[string]tagName // names by ID; nil if empty
}

// get returns the name of an ID and whether it is known.
func (t *nameTable) get(id string) (tagName, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, ok := t.names[id]
	return n, ok
}

// put stores the name of an ID.
func (t *nameTable) put(id string, n tagName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.names == nil {
		t.names = map[string]tagName{}
	}
	t.names[id] = n
}

// forgetOld removes names that were read before the time.
func (t *nameTable) forgetOld(before time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, n := range t.names {
		if n.read.Before(before) {
			delete(t.names, id)
		}
	}
}
