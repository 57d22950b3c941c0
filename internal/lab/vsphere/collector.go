package vsphere

import (
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// A collector retrieves properties in a tenth of the simulator's time: the simulator copies each object
// by encoding and decoding XML. It also reads the objects of a page when the client requests the page,
// as real servers do; the simulator reads all objects for the first page.
//
// The simulator creates a collector for each session, so that the zero value must be ready for use.
type collector struct {
	simulator.PropertyCollector

	mu    sync.Mutex            // guards the fields below
	token int                   // number of the newest token
	rest  map[string]*retrieval // remaining pages of answers by token
}

// RetrievePropertiesEx answers common requests and passes unusual ones to the simulator.
func (c *collector) RetrievePropertiesEx(ctx *simulator.Context, req *types.RetrievePropertiesEx) soap.HasFault {
	if ctx.Session == nil || isUnusual(req.SpecSet) { // the simulator answers
		return c.PropertyCollector.RetrievePropertiesEx(ctx, req)
	}
	body := &methods.RetrievePropertiesExBody{}
	r := &retrieval{specs: req.SpecSet, named: map[string]*types.TraversalSpec{}, seen: map[types.ManagedObjectReference]bool{}, most: int(req.Options.MaxObjects)}
	if f := r.selectObjects(ctx); f != nil {
		body.Fault_ = simulator.Fault("", f)
		return body
	}
	page := c.readPage(ctx, r)
	body.Res = &types.RetrievePropertiesExResponse{Returnval: &page}
	return body
}

// ContinueRetrievePropertiesEx returns the next page. Each token is valid once.
func (c *collector) ContinueRetrievePropertiesEx(ctx *simulator.Context, req *types.ContinueRetrievePropertiesEx) soap.HasFault {
	c.mu.Lock()
	r := c.rest[req.Token]
	delete(c.rest, req.Token)
	c.mu.Unlock()
	if r == nil {
		return c.PropertyCollector.ContinueRetrievePropertiesEx(ctx, req)
	}
	return &methods.ContinueRetrievePropertiesExBody{Res: &types.ContinueRetrievePropertiesExResponse{Returnval: c.readPage(ctx, r)}}
}

// CancelRetrievePropertiesEx drops the remaining pages of an answer.
func (c *collector) CancelRetrievePropertiesEx(_ *simulator.Context, req *types.CancelRetrievePropertiesEx) soap.HasFault {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.rest, req.Token)
	return &methods.CancelRetrievePropertiesExBody{Res: &types.CancelRetrievePropertiesExResponse{}}
}

// readPage returns the next page, with a new token if more pages follow.
func (c *collector) readPage(ctx *simulator.Context, r *retrieval) types.RetrieveResult {
	page := types.RetrieveResult{Objects: r.nextPage(ctx)}
	if len(r.left) == 0 { // the last page needs no token
		return page
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token++
	page.Token = strconv.Itoa(c.token)
	if c.rest == nil {
		c.rest = map[string]*retrieval{}
	}
	c.rest[page.Token] = r
	return page
}

// isUnusual reports whether a filter requests all properties, or one item of a list.
func isUnusual(specs []types.PropertyFilterSpec) bool {
	for _, s := range specs {
		for _, p := range s.PropSet {
			if isTrue(p.All) || strings.Contains(strings.Join(p.PathSet, ""), "[") {
				return true
			}
		}
	}
	return false
}

// isTrue reports whether an optional boolean is set to true.
func isTrue(b *bool) bool { return b != nil && *b }

// A retrieval is one answer: the selected objects that no page has contained yet.
type retrieval struct {
	specs []types.PropertyFilterSpec            // filters of the request
	named map[string]*types.TraversalSpec       // traversals by name, which other traversals refer to
	seen  map[types.ManagedObjectReference]bool // selected objects, to select each only once
	left  []types.ManagedObjectReference        // objects that no page has contained, in order
	most  int                                   // most objects of a page; 0 is unlimited
}

// selectObjects finds the objects that the filters select.
func (r *retrieval) selectObjects(ctx *simulator.Context) types.BaseMethodFault {
	for _, spec := range r.specs {
		for _, o := range spec.ObjectSet {
			if f := r.chooseFrom(ctx, o, isTrue(spec.ReportMissingObjectsInResults)); f != nil {
				return f
			}
		}
	}
	return nil
}

// chooseFrom selects an object and those that its traversals reach. A missing object is a fault, unless
// maybe is set.
func (r *retrieval) chooseFrom(ctx *simulator.Context, o types.ObjectSpec, maybe bool) (f types.BaseMethodFault) {
	obj, there := managedObject(ctx, o.Obj)
	if !there && maybe { // the filter permits missing objects
		return nil
	}
	if !there {
		return &types.ManagedObjectNotFound{Obj: o.Obj}
	}
	if !isTrue(o.Skip) {
		r.addObject(o.Obj)
	}
	ctx.WithLock(o.Obj, func() { f = r.walkPaths(ctx, obj, o.SelectSet) })
	return f
}

// addObject selects an object once.
func (r *retrieval) addObject(ref types.ManagedObjectReference) {
	if !r.seen[ref] {
		r.seen[ref], r.left = true, append(r.left, ref)
	}
}

// walkPaths follows traversals from an object. Names of traversals are valid for the whole request.
func (r *retrieval) walkPaths(ctx *simulator.Context, obj reflect.Value, paths []types.BaseSelectionSpec) types.BaseMethodFault {
	for _, p := range paths {
		if t, ok := p.(*types.TraversalSpec); ok && t.Name != "" {
			r.named[t.Name] = t
		}
	}
	for _, p := range paths {
		t, ok := p.(*types.TraversalSpec)
		if !ok {
			t = r.named[p.GetSelectionSpec().Name]
		}
		if t == nil {
			return &types.InvalidArgument{InvalidProperty: "undefined TraversalSpec name"}
		}
		if f := r.followTraversal(ctx, obj, t); f != nil {
			return f
		}
	}
	return nil
}

// followTraversal selects the objects that one traversal reaches, recursively.
func (r *retrieval) followTraversal(ctx *simulator.Context, obj reflect.Value, t *types.TraversalSpec) types.BaseMethodFault {
	val, _ := propertyAt(obj, t.Path) // an object of another type has no such path
	for _, ref := range refsIn(val) {
		if !isTrue(t.Skip) {
			r.addObject(ref)
		}
		next, there := managedObject(ctx, ref)
		if !there || len(t.SelectSet) == 0 {
			continue
		}
		if f := r.walkPaths(ctx, next, t.SelectSet); f != nil {
			return f
		}
	}
	return nil
}

// refsIn returns the references in a property: one, a list, or none for other types.
func refsIn(val reflect.Value) []types.ManagedObjectReference {
	if !val.IsValid() {
		return nil
	}
	switch v := val.Interface().(type) {
	case types.ManagedObjectReference:
		return []types.ManagedObjectReference{v}
	case *types.ManagedObjectReference:
		return []types.ManagedObjectReference{*v}
	case []types.ManagedObjectReference:
		return v
	}
	return nil
}

// nextPage reads the next objects. Objects that were destroyed since their selection are omitted.
func (r *retrieval) nextPage(ctx *simulator.Context) (objects []types.ObjectContent) {
	n := len(r.left)
	if r.most > 0 {
		n = min(n, r.most)
	}
	for _, ref := range r.left[:n] {
		ctx.WithLock(ref, func() {
			if obj, there := managedObject(ctx, ref); there {
				objects = r.appendObject(obj, ref, objects)
			}
		})
	}
	r.left = r.left[n:]
	return objects
}

// appendObject appends the properties of an object, if a filter names its type.
func (r *retrieval) appendObject(obj reflect.Value, ref types.ManagedObjectReference, to []types.ObjectContent) []types.ObjectContent {
	content, wanted := types.ObjectContent{Obj: ref}, false
	for _, spec := range r.specs {
		for _, p := range spec.PropSet {
			if isKind(obj.Type(), ref, p.Type) {
				wanted = true
				readPaths(&content, obj, p.PathSet)
			}
		}
	}
	if !wanted {
		return to
	}
	return append(to, content)
}

// isKind reports whether an object is of a type, or of one derived from it.
func isKind(t reflect.Type, ref types.ManagedObjectReference, kind string) bool {
	if kind == ref.Type || kind == t.Name() {
		return true
	}
	return kind != "" && memberOf(t, kind).base
}

// readPaths appends the properties at the paths to content. Unset properties are omitted; unknown ones
// are reported as missing.
func readPaths(content *types.ObjectContent, obj reflect.Value, paths []string) {
	for _, path := range paths {
		val, ok := propertyAt(obj, path)
		switch {
		case !ok:
			content.MissingSet = append(content.MissingSet, types.MissingProperty{
				Path: path, Fault: types.LocalizedMethodFault{Fault: &types.InvalidProperty{Name: path}},
			})
		case val.IsValid():
			content.PropSet = append(content.PropSet, types.DynamicProperty{Name: path, Val: asAnswered(val)})
		}
	}
}

// managedObject returns an object as its type of package mo, which the simulator's types embed as their
// first field. It reads snapshots from the inventory, because a session keeps its override of a snapshot
// after the removal.
func managedObject(ctx *simulator.Context, ref types.ManagedObjectReference) (reflect.Value, bool) {
	get := ctx.Session.Get
	if ref.Type == "VirtualMachineSnapshot" {
		get = ctx.Map.Get
	}
	obj := get(ref)
	if obj == nil {
		return reflect.Value{}, false
	}
	if o, ok := obj.(interface{ Get() mo.Reference }); ok {
		obj = o.Get() // the mo type of a simulator's object
	}
	v := reflect.ValueOf(obj).Elem()
	for !strings.HasSuffix(v.Type().PkgPath(), "/mo") {
		v = reflect.Indirect(v.Field(0))
	}
	return v, true
}
