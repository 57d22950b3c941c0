package vsphere

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Tag is a tag of a vCenter.
type Tag struct {
	Category string `json:"category"` // name of the category
	Name     string `json:"name"`     // name within the category
}

// Tagging configures the REST service for tags of a vCenter. An ESXi host has none.
type Tagging struct {
	Paths TagPaths `json:"paths,omitempty"` // default by Config.Version
	Idle  Duration `json:"idle,omitempty"`  // time after which an unused session ends; default 5m
	Spare []Tag    `json:"spare,omitempty"` // tags that no VM has
}

// TagPaths selects the available forms of the service.
type TagPaths string

// Forms. VMware's reference has /api as of 7.0 U2 and marks /rest as deprecated since; the tagging
// service itself is as of 6.0, by REST as of 6.5.
const (
	TagsBoth  TagPaths = "both"  // /api and /rest: 7.0 U2 and later
	TagsRest  TagPaths = "rest"  // /rest alone: 6.5 to 7.0 U1
	TagsMixed TagPaths = "mixed" // the sessions of /api, the tags of /rest
	TagsNone  TagPaths = "none"  // neither
)

// setDefaults sets the idle time, and the paths of a product version.
func (t *Tagging) setDefaults(version string) {
	setDefault(&t.Idle, Duration(5*time.Minute))
	if t.Paths != "" {
		return
	}
	switch t.Paths = TagsBoth; {
	case olderThan(version, 6, 5, 0):
		t.Paths = TagsNone
	case olderThan(version, 7, 0, 2):
		t.Paths = TagsRest
	}
}

// validate returns an error for unknown paths or an incomplete tag.
func (t Tagging) validate() error {
	var errs []error
	for _, tag := range t.Spare {
		errs = append(errs, tag.validate())
	}
	return errors.Join(append(errs, oneOf("tagging paths", string(t.Paths), []string{string(TagsBoth), string(TagsRest), string(TagsMixed), string(TagsNone)}))...)
}

// validate returns an error unless category and name are set.
func (t Tag) validate() error {
	if t.Category == "" || t.Name == "" {
		return fmt.Errorf("tag %+v: want a category and a name", t)
	}
	return nil
}

// olderThan reports whether a version is less than another. Missing parts of version do not count.
func olderThan(version string, than ...int) bool {
	for i, part := range strings.Split(version, ".") {
		n, _ := strconv.Atoi(part)
		if i < len(than) && n != than[i] {
			return n < than[i]
		}
	}
	return false
}

// A tagService is the REST service of a vCenter.
type tagService struct {
	lab *Lab // emulator with the VMs

	mu         sync.Mutex           // guards sessions; the other fields are constant
	sessions   map[string]time.Time // time of the last use by session ID
	tags       map[string]Tag       // tags by ID
	categories map[string]string    // categories by ID
	attached   map[string][]string  // IDs of tags, by the VM's reference
	hidden     map[string]bool      // VMs that the account may not read
}

// newTagService returns the service with the tags of the configuration.
func newTagService(l *Lab) *tagService {
	s := &tagService{
		lab: l, sessions: map[string]time.Time{}, tags: map[string]Tag{}, categories: map[string]string{},
		attached: map[string][]string{}, hidden: map[string]bool{},
	}
	for _, t := range l.cfg.Tagging.Spare {
		s.addTag(t)
	}
	for ref, m := range l.machines {
		for _, t := range m.spec.Tags {
			s.attached[ref.Value] = append(s.attached[ref.Value], s.addTag(t))
		}
		s.hidden[ref.Value] = m.spec.TagsHidden
	}
	return s
}

// tagURN returns the ID of a tag or category.
func tagURN(kind, name string) string { return "urn:vmomi:" + kind + ":" + uuidOf(name) + ":GLOBAL" }

// categoryID returns the ID of the tag's category.
func (t Tag) categoryID() string { return tagURN("InventoryServiceCategory", t.Category) }

// addTag adds a tag and its category, and returns the tag's ID.
func (s *tagService) addTag(t Tag) string {
	id := tagURN("InventoryServiceTag", t.Category+"\x00"+t.Name)
	s.tags[id], s.categories[t.categoryID()] = t, t.Category
	return id
}

// killAll ends all sessions.
func (s *tagService) killAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.sessions)
}

// A tagCall is an operation of the service, regardless of its form.
type tagCall struct {
	name    string // name of the call in Stats.REST
	wrapped bool   // whether the form is /rest: answers are inside "value"
	id      string // ID in the path
}

const (
	tagLogin    = "login"                         // open a session
	tagLogout   = "logout"                        // end a session
	tagList     = "list-attached-tags-on-objects" // list the tags of objects
	tagGet      = "tag"                           // read a tag
	categoryGet = "category"                      // read a category
)

// parseCall parses a request; known is false if the service does not have the operation.
func (s *tagService) parseCall(r *http.Request) (c tagCall, known bool) {
	paths := s.lab.cfg.Tagging.Paths
	path, isAPI := strings.CutPrefix(r.URL.Path, "/api/")
	session, tagging, action, before := "session", "cis/tagging/", "action", ""
	if !isAPI {
		path, c.wrapped = strings.CutPrefix(r.URL.Path, "/rest/")
		session, tagging, action, before = "com/vmware/cis/session", "com/vmware/cis/tagging/", "~action", "id:"
	}
	switch {
	case paths == TagsNone, isAPI && paths == TagsRest, !isAPI && !c.wrapped: // a form that the version lacks
		return c, false
	case path == session && r.Method == http.MethodPost:
		c.name = tagLogin
	case path == session && r.Method == http.MethodDelete:
		c.name = tagLogout
	case isAPI && paths == TagsMixed: // /api has only sessions
	case path == tagging+"tag-association" && r.Method == http.MethodPost && r.URL.Query().Get(action) == tagList:
		c.name = tagList
	case r.Method == http.MethodGet:
		c.name, c.id = tagOrCategory(strings.TrimPrefix(path, tagging), before)
	}
	return c, c.name != ""
}

// tagOrCategory parses the path of a tag or category; before is a prefix of its ID.
func tagOrCategory(path, before string) (name, id string) {
	name, id, _ = strings.Cut(path, "/")
	id, ok := strings.CutPrefix(id, before)
	if !ok || id == "" || name != tagGet && name != categoryGet {
		return "", ""
	}
	return name, id
}

// isREST reports whether a path belongs to the REST service.
func isREST(path string) bool {
	return strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/rest/")
}

// serveTags answers a request to the REST service.
func (e *endpoint) serveTags(w http.ResponseWriter, r *http.Request) {
	e.lab.stats.countRequest(r)
	s := e.lab.tags
	c, known := s.parseCall(r)
	if known {
		e.lab.stats.countREST(c.name)
	}
	if hit := e.lab.faults.takeREST(r); hit != nil {
		hit.answerREST(w)
		return
	}
	status, answer := http.StatusNotFound, any(nil)
	if known {
		status, answer = s.answerCall(e, c, r)
	}
	if c.wrapped && status < 300 {
		if status = http.StatusOK; answer != nil {
			answer = map[string]any{"value": answer}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	switch {
	case status >= 300:
		_ = json.NewEncoder(w).Encode(refusalOf(status, c.wrapped)) // fails if the client has disconnected
	case answer != nil:
		_ = json.NewEncoder(w).Encode(answer)
	}
}

// answerREST sends the answer of a fault.
func (f *injected) answerREST(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	if f.isKind(FaultRESTGarbage) {
		_, _ = w.Write([]byte(`{"value":[{"object_id":`))
		return
	}
	w.WriteHeader(cmp.Or(f.Status, http.StatusServiceUnavailable))
	_, _ = w.Write([]byte("{}"))
}

// refusalOf returns the error body for a status.
func refusalOf(status int, wrapped bool) any {
	name := map[int]string{http.StatusUnauthorized: "UNAUTHENTICATED", http.StatusForbidden: "UNAUTHORIZED", http.StatusNotFound: "NOT_FOUND"}[status]
	name = cmp.Or(name, "ERROR")
	if wrapped {
		return map[string]any{"type": "com.vmware.vapi.std.errors." + strings.ToLower(name), "value": map[string]any{"messages": []any{}}}
	}
	return map[string]any{"error_type": name, "messages": []any{}}
}

// answerCall executes an operation. Except for a login it requires a session, and extends it.
func (s *tagService) answerCall(e *endpoint, c tagCall, r *http.Request) (status int, answer any) {
	if c.name == tagLogin {
		return s.logIn(e, r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := r.Header.Get("vmware-api-session-id")
	used, ok := s.sessions[id]
	if !ok || s.lab.now().Sub(used) >= time.Duration(s.lab.cfg.Tagging.Idle) {
		delete(s.sessions, id)
		return http.StatusUnauthorized, nil
	}
	s.sessions[id] = s.lab.now()
	switch c.name {
	case tagLogout:
		delete(s.sessions, id)
		return http.StatusNoContent, nil
	case tagList:
		return s.listTags(r)
	case tagGet:
		if t, ok := s.tags[c.id]; ok {
			return http.StatusOK, map[string]any{"id": c.id, "name": t.Name, "category_id": t.categoryID(), "description": "", "used_by": []string{}}
		}
	case categoryGet:
		if name, ok := s.categories[c.id]; ok {
			return http.StatusOK, map[string]any{"id": c.id, "name": name, "cardinality": "MULTIPLE", "associable_types": []string{}}
		}
	}
	return http.StatusNotFound, nil
}

// logIn opens a session. Passwords and locks are those of the SOAP API, because one directory serves
// both.
func (s *tagService) logIn(e *endpoint, r *http.Request) (int, any) {
	user, pass, ok := r.BasicAuth()
	if !ok || !e.auth.checkPassword(user, pass) {
		return http.StatusUnauthorized, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := newID()
	s.sessions[id] = s.lab.now()
	return http.StatusCreated, id
}

// listTags returns the tags of objects. Objects without tags are omitted. A missing or unreadable
// object causes the rejection of the whole call (seen with 6.7 U3: govmomi, pull request 2211).
func (s *tagService) listTags(r *http.Request) (int, any) {
	var ask struct {
		Objects []struct{ ID, Type string } `json:"object_ids"`
	}
	if json.NewDecoder(r.Body).Decode(&ask) != nil || len(ask.Objects) == 0 {
		return http.StatusBadRequest, nil
	}
	out := []any{}
	for _, o := range ask.Objects {
		if hidden, there := s.hidden[o.ID]; hidden || !there || o.Type != "VirtualMachine" {
			return http.StatusForbidden, nil
		}
		if ids := s.attached[o.ID]; len(ids) > 0 {
			out = append(out, map[string]any{"object_id": map[string]string{"id": o.ID, "type": o.Type}, "tag_ids": ids})
		}
	}
	slices.Reverse(out) // the order of the response is not documented
	return http.StatusOK, out
}

// TagSessions returns the number of sessions of the REST service.
func (l *Lab) TagSessions() int {
	l.tags.mu.Lock()
	defer l.tags.mu.Unlock()
	return len(l.tags.sessions)
}
