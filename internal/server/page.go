package server

import (
	"embed"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strconv"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
)

//go:embed page
var pageFiles embed.FS

// pages are the templates. What is put into them is escaped for its place by html/template.
var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"bytes": formatBytes, "rate": formatRate, "percent": percentOf, "readable": resourceWords,
}).ParseFS(pageFiles, "page/*.html"))

// pageFrame is what every page has.
type pageFrame struct {
	Title   string
	Who     Who
	Proof   string // proof of the session for forms
	Version string
	Fleet   fleetSummary
	Body    any
}

// Operates is whether the page has buttons.
func (p pageFrame) Operates() bool { return p.Who.Role.May(Operate) }

// website serves the pages for browsers. It is safe for concurrent use.
type website struct {
	version string
	gate    *gate
	plans   *fleetdb.Plans
	vms     *fleetdb.VMs
	workers *fleetdb.Workers
	cache   *fleetCache
	orders  *orders
	log     *slog.Logger
}

func (s *website) registerRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /static/{file}", serveStatic)
	mux.HandleFunc("GET /login", s.showLogin)
	mux.HandleFunc("POST /login", s.handleLogin)
	mux.HandleFunc("POST /logout", s.handleLogout)
	mux.HandleFunc("GET /{$}", s.pageHandler("see the plans", s.showPlans))
	mux.HandleFunc("GET /plans/{plan}", s.pageHandler("see a plan", s.showPlan))
	mux.HandleFunc("POST /plans/{plan}/orders", s.formHandler("give a plan an order", s.planForm))
	mux.HandleFunc("POST /plans/{plan}/vms/{vm}/orders", s.formHandler("give a VM an order", s.vmForm))
}

// serveStatic serves script, style and icon: files, and no lists of them.
func serveStatic(w http.ResponseWriter, r *http.Request) {
	http.ServeFileFS(w, r, pageFiles, path.Join("page/static", path.Base(r.PathValue("file"))))
}

// pageHandler is a handler for those who may view; strangers are sent to the login.
func (s *website) pageHandler(what string, show func(http.ResponseWriter, *http.Request, Who) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who, err := s.gate.auth.identifyUser(r)
		if err == nil && who.Role == Nobody {
			http.Redirect(w, r, "/login", http.StatusSeeOther)
			return
		}
		if err == nil {
			who, err = s.gate.permitRequest(r, View, what, r.URL.Path)
		}
		if err == nil {
			err = show(w, r, who)
		}
		if err != nil {
			s.showError(w, who, err)
		}
	}
}

// formBytes is what a form may have.
const formBytes = 16 << 10

// formHandler is a handler of a button, for users with a valid session and a form of this server.
func (s *website) formHandler(what string, do func(*http.Request) (back string, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, formBytes)
		who, err := s.gate.permitRequest(r, Operate, what, r.URL.Path)
		if err == nil && who.Session != "" && !s.gate.auth.sessions.isProof(who.Session, r.PostFormValue("proof")) {
			err = fault.New(fault.Denied, "the form is not of this session").WithHint("reload the page, and try again")
			s.gate.trail.noteRefusal(r.Context(), who, what, r.URL.Path, err)
		}
		back := ""
		if err == nil {
			back, err = do(r.WithContext(withWho(r.Context(), who)))
		}
		if err != nil {
			s.showError(w, who, err)
			return
		}
		http.Redirect(w, r, back, http.StatusSeeOther)
	}
}

// renderPage writes a page whole, or an error.
func (s *website) renderPage(w http.ResponseWriter, status int, name string, p pageFrame) error {
	p.Version = s.version
	if p.Who.Session != "" {
		p.Proof = s.gate.auth.sessions.formProof(p.Who.Session)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	return pages.ExecuteTemplate(w, name, p)
}

func (s *website) showError(w http.ResponseWriter, who Who, err error) {
	p := problemOf(err)
	for name, values := range p.header {
		w.Header()[name] = values
	}
	if err := s.renderPage(w, p.Status, "error.html", pageFrame{Title: p.Title, Who: who, Body: p}); err != nil {
		s.log.Debug("page not sent", "err", err)
	}
}

func (s *website) showLogin(w http.ResponseWriter, _ *http.Request) {
	if err := s.renderPage(w, http.StatusOK, "login.html", pageFrame{Title: "Log in"}); err != nil {
		s.log.Debug("page not sent", "err", err)
	}
}

// handleLogin begins a session for the owner of a token.
func (s *website) handleLogin(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, formBytes)
	from := peerAddress(r)
	token, err := s.gate.auth.checkSecret(r.PostFormValue("token"), from)
	if err == nil {
		var cookie *http.Cookie
		if cookie, err = s.gate.auth.sessions.newCookie(token); err == nil {
			http.SetCookie(w, cookie)
			http.Redirect(w, r, "/", http.StatusSeeOther)
			return
		}
	}
	s.gate.trail.noteRefusal(r.Context(), Who{From: from}, "log in", "/login", err)
	p := problemOf(err)
	w.Header()["Retry-After"] = p.header["Retry-After"]
	if err := s.renderPage(w, p.Status, "login.html", pageFrame{Title: "Log in", Body: p}); err != nil {
		s.log.Debug("page not sent", "err", err)
	}
}

func (s *website) handleLogout(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, s.gate.auth.sessions.expiredCookie())
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

// plansPage is what the first page shows.
type plansPage struct {
	Plans   []planRow
	Workers []fleetdb.Worker
}

// planRow is a plan with what its counts come to.
type planRow struct {
	fleetdb.Plan
	All, Done, Failed int
}

// Open reports whether the plan takes orders for VMs that are not over.
func (p planRow) Open() bool { return !p.State.Over() }

// Retries reports whether a retry has something to begin again.
func (p planRow) Retries() bool {
	return p.Failed+p.Counts[fleetdb.Canceled] > 0 || p.State == fleetdb.PlanFailed
}

// Cancels reports whether a cancellation has something to undo.
func (p planRow) Cancels() bool { return p.Open() || p.Failed > 0 }

// Acts reports whether the plan takes any order.
func (p planRow) Acts() bool { return p.Open() || p.Retries() }

func rowOf(p fleetdb.Plan) planRow {
	row := planRow{Plan: p, Done: p.Counts[fleetdb.Done], Failed: p.Counts[fleetdb.Failed]}
	for _, n := range p.Counts {
		row.All += n
	}
	return row
}

func (s *website) showPlans(w http.ResponseWriter, r *http.Request, who Who) error {
	ctx := r.Context()
	plans, err := s.plans.List(ctx)
	if err != nil {
		return err
	}
	var body plansPage
	for _, p := range plans {
		body.Plans = append(body.Plans, rowOf(p))
	}
	if body.Workers, err = s.workers.List(ctx); err != nil {
		return err
	}
	b, err := s.cache.readState(ctx)
	if err != nil {
		return err
	}
	return s.renderPage(w, http.StatusOK, "plans.html", pageFrame{Title: "Plans", Who: who, Fleet: newSummary(b), Body: body})
}

// planPage is what the page of a plan shows.
type planPage struct {
	planRow
	States []stateTab
	Items  []vmItem
	Query  string       // query of this page, for the script and for returning to it
	Next   template.URL // query of the next page, made of fixed words and numbers
	First  bool         // this is the first one
}

// stateTab leads to the VMs of one state.
type stateTab struct {
	State  fleetdb.State // "" is all
	Count  int
	Chosen bool
}

func (s *website) showPlan(w http.ResponseWriter, r *http.Request, who Who) error {
	ctx := r.Context()
	p, err := s.plans.Get(ctx, r.PathValue("plan"))
	if err != nil {
		return err
	}
	q := pageQuery(p.Name, r.URL.Query())
	items, next, err := readPage(ctx, s.vms, s.cache, q)
	if err != nil {
		return err
	}
	b, err := s.cache.readState(ctx)
	if err != nil {
		return err
	}
	body := planPage{planRow: rowOf(p), Items: items, Query: queryText(q, q.After), First: q.After == 0}
	body.States = stateTabs(body.planRow, q)
	if next > 0 {
		body.Next = template.URL("?" + queryText(q, next))
	}
	return s.renderPage(w, http.StatusOK, "plan.html", pageFrame{Title: p.Name, Who: who, Fleet: newSummary(b), Body: body})
}

// pageQuery reads which VMs a page shows. What it does not understand it leaves out.
func pageQuery(plan string, values url.Values) fleetdb.Query {
	q := fleetdb.Query{Plan: plan, Limit: pageVMs}
	if after, err := strconv.ParseInt(values.Get("after"), 10, 64); err == nil && after > 0 {
		q.After = after
	}
	for _, state := range states {
		if string(state) == values.Get("state") {
			q.States = []fleetdb.State{state}
		}
	}
	return q
}

// queryText is the other way round.
func queryText(q fleetdb.Query, after int64) string {
	values := url.Values{}
	if after > 0 {
		values.Set("after", strconv.FormatInt(after, 10))
	}
	if len(q.States) > 0 {
		values.Set("state", string(q.States[0]))
	}
	return values.Encode()
}

func stateTabs(p planRow, q fleetdb.Query) []stateTab {
	all := []stateTab{{Count: p.All, Chosen: len(q.States) == 0}}
	for _, state := range states {
		all = append(all, stateTab{state, p.Counts[state], len(q.States) > 0 && q.States[0] == state})
	}
	return all
}

// backTo is where a button leads back to: the page of the plan that it was on.
func backTo(r *http.Request, plan string) string {
	u := url.URL{Path: "/plans/" + plan}
	if values, err := url.ParseQuery(r.PostFormValue("back")); err == nil {
		q := pageQuery(plan, values)
		u.RawQuery = queryText(q, q.After)
	}
	return u.String()
}

// orderWord reads the order of a button.
func orderWord(r *http.Request) (string, error) {
	switch word := r.PostFormValue("order"); word {
	case fleetdb.GoOn.Word(), string(fleetdb.Pause), string(fleetdb.CutOver), string(fleetdb.Cancel), string(fleetdb.Retry), string(fleetdb.Rollback):
		return word, nil
	}
	return "", fault.New(fault.Invalid, "there is no such order").WithHint("go back, and use the buttons")
}

func (s *website) planForm(r *http.Request) (string, error) {
	word, err := orderWord(r)
	if err != nil {
		return "", err
	}
	plan := r.PathValue("plan")
	return backTo(r, plan), s.orders.orderPlan(r.Context(), plan, word)
}

func (s *website) vmForm(r *http.Request) (string, error) {
	word, err := orderWord(r)
	if err != nil {
		return "", err
	}
	k := fleetdb.Key{Plan: r.PathValue("plan"), VM: r.PathValue("vm")}
	return backTo(r, k.Plan), s.orders.orderVM(r.Context(), k, word)
}
