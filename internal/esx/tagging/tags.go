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
	// tagPage is how many VMs are asked about at a time. No limit is documented.
	tagPage = 200

	// tagSplits is how often a page that is refused is asked for in halves: a VM that is gone, or
	// that the user may not see, spoils the answer for all.
	tagSplits = 20

	// tagCalls are made at a time, for names. At some 20 ms each that is well below what the service
	// refuses.
	tagCalls = 4

	// tagNamesLife is how long the name of a tag is believed.
	tagNamesLife = 10 * time.Minute
)

// AddTags gives VMs their tags, and a warning to those whose tags cannot be read. For v VMs that have t tags of c categories between them it makes
//
//	⌈v/200⌉ + t + c
//
// calls, and one to log in for the first of all; a name that was read less than ten minutes ago takes
// none. There is no call for the names of many tags. Tags that no such VM has cost nothing, however
// many there are.
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
		if why := cmp.Or(err, r.refused[vms[i].Ref]); why != nil {
			vms[i].Warnings = append(vms[i].Warnings, inventory.Warning{
				Code: inventory.WarnTags, Text: fmt.Sprintf("its tags could not be read, and stay behind: %v", why), Remedy: cmp.Or(fault.HintOf(why), hint),
			})
		}
	}
}

// A tagReading collects what is read for one list of VMs.
type tagReading struct {
	service  *Service
	attached map[inventory.MoRef][]string // the IDs of the tags that VMs have
	refused  map[inventory.MoRef]error    // why it is not told
	splits   int                          // left
}

// readTags asks for the tags of some VMs, and asks in halves where one of them spoils the answer.
func (r *tagReading) readTags(ctx context.Context, vms []inventory.VM) error {
	found, err := r.service.listAttached(ctx, vms)
	if !rest.IsStatusError(err, http.StatusForbidden) {
		for _, f := range found {
			ref := inventory.MoRef(f.ObjectID.Reference().Value)
			r.attached[ref] = append(r.attached[ref], f.TagIDs...)
		}
		return err
	}
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

// listAttached asks for the tags of some VMs, once. Those without any are not in the answer.
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
		t.session.Store(&tagSession{with.Client, oldDialect}) // nothing says that one came with the other
		err = t.callPatiently(ctx, q, &found)
	}
	return found, err
}

// readNames reads the names of the tags, and then those of their categories, that are not known.
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

// nameEach reads what has no name yet, each once. What is gone by now is left without.
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

// tagNames are those of tags and categories, by their IDs.
type tagNames struct{ tags, categories *nameTable }

type tagName struct {
	name     string
	category string // the ID of a tag's
	read     time.Time
}

func newTagNames() tagNames { return tagNames{&nameTable{}, &nameTable{}} }

func (n tagNames) forgetOld(before time.Time) {
	n.tags.forgetOld(before)
	n.categories.forgetOld(before)
}

// tagsOf is what tags are called, in order. Those that were deleted since are not in it.
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

// A nameTable keeps names. Several calls fill it at a time.
type nameTable struct {
	mu    sync.Mutex
	names map[string]tagName
}

func (t *nameTable) get(id string) (tagName, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, ok := t.names[id]
	return n, ok
}

func (t *nameTable) put(id string, n tagName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.names == nil {
		t.names = map[string]tagName{}
	}
	t.names[id] = n
}

func (t *nameTable) forgetOld(before time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, n := range t.names {
		if n.read.Before(before) {
			delete(t.names, id)
		}
	}
}
