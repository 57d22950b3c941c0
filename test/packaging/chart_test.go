package packaging

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	yamlvalues "sigs.k8s.io/yaml"
)

const root = "../.."

// chartVariants are values files for variants of the chart.
var chartVariants = map[string]string{
	"defaults": ``,
	"full": `
database: {url: "postgres://decamp@db.example.com/decamp?connect_timeout=5", caSecret: db-ca}
secrets: {credentials: [vc1, esx1], tokens: decamp-tokens, tls: decamp-tls}
imagePullSecrets: [{name: registry}]
server: {replicas: 2, extraArgs: [--client-ca=/run/credentials/decamp/ca.pem], service: {type: LoadBalancer, annotations: {a: b}}}
workers: {replicas: 3, extraArgs: [--trials=2], images: {storageClass: fast, size: 2Ti}, state: {storageClass: fast}}
networkPolicy: {egress: [{to: [{ipBlock: {cidr: 10.1.0.0/16}}], ports: [{port: 8006, protocol: TCP}]}], sources: {cidrs: [10.0.0.0/24], ports: [443]}}
nodeSelector: {disk: ssd}
tolerations: [{key: a, operator: Exists}]
affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {a: b}}}]}}
`,
	"cloudNativePG": `
database: {cloudNativePG: pg}
workers: {images: {existingClaim: images}, autoscaling: {enabled: true, max: 9}}
`,
	"landing": `
workers: {landing: {enabled: true, hosts: [10.0.2.0/24]}}
`,
	"without policies": `
networkPolicy: {enabled: false}
`,
}

// renderObjects renders a variant and decodes it as an API server does with fieldValidation=Strict.
func renderObjects(t *testing.T, text string) (all []runtime.Object) {
	t.Helper()
	var v map[string]any
	must(t, yamlvalues.Unmarshal([]byte(text), &v))
	rendered, err := Render(filepath.Join(root, ChartFolder), v)
	must(t, err)
	return decodeObjects(t, rendered)
}

func decodeObjects(t *testing.T, text []byte) (all []runtime.Object) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme, autoscalingv2.AddToScheme} {
		must(t, add(scheme))
	}
	strict := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		must(t, err)
		o, _, err := strict.Decode(document, nil, nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		all = append(all, o)
	}
}

// podTemplates returns the pod templates of a variant, by component.
func podTemplates(all []runtime.Object) map[string]corev1.PodTemplateSpec {
	found := map[string]corev1.PodTemplateSpec{}
	for _, o := range all {
		switch o := o.(type) {
		case *appsv1.Deployment:
			found["server"] = o.Spec.Template
		case *appsv1.StatefulSet:
			found["worker"] = o.Spec.Template
		}
	}
	return found
}

func testVariants(t *testing.T, f func(*testing.T, string, []runtime.Object)) {
	for name, text := range chartVariants {
		t.Run(name, func(t *testing.T) { f(t, name, renderObjects(t, text)) })
	}
}

// All variants pass the pod security standard restricted.
func TestPodsAreRestricted(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks())
	must(t, err)
	restricted := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	testVariants(t, func(t *testing.T, _ string, all []runtime.Object) {
		found := podTemplates(all)
		if len(found) != 2 {
			t.Fatalf("templates of %d components", len(found))
		}
		for component, p := range found {
			if r := policy.AggregateCheckResults(evaluator.EvaluatePod(restricted, &p.ObjectMeta, &p.Spec)); !r.Allowed {
				t.Errorf("%s: %s", component, r.ForbiddenDetail())
			}
			p.Spec.HostNetwork = true
			if policy.AggregateCheckResults(evaluator.EvaluatePod(restricted, &p.ObjectMeta, &p.Spec)).Allowed {
				t.Errorf("%s: the evaluator allows HostNetwork", component)
			}
			if *p.Spec.AutomountServiceAccountToken || !*p.Spec.Containers[0].SecurityContext.ReadOnlyRootFilesystem {
				t.Errorf("%s has a token of the API or a writable root file system", component)
			}
		}
	})
}

// Each pod has a network policy, which admits exactly the ports of its container.
func TestPoliciesAdmitThePorts(t *testing.T) {
	testVariants(t, func(t *testing.T, variant string, all []runtime.Object) {
		admitted := map[string][]int32{}
		for _, o := range all {
			p, ok := o.(*networkingv1.NetworkPolicy)
			if !ok {
				continue
			}
			component := p.Spec.PodSelector.MatchLabels["app.kubernetes.io/component"]
			admitted[component] = []int32{}
			for _, rule := range p.Spec.Ingress {
				if len(rule.From) == 0 {
					t.Errorf("%s: the policy admits all sources", component)
				}
				for _, port := range rule.Ports {
					admitted[component] = append(admitted[component], port.Port.IntVal)
				}
			}
			if len(p.Spec.PolicyTypes) != 2 || len(p.Spec.Egress) < 3 {
				t.Errorf("%s: policy %+v", component, p.Spec)
			}
		}
		if variant == "without policies" {
			if len(admitted) > 0 {
				t.Errorf("policies %v", admitted)
			}
			return
		}
		for component, p := range podTemplates(all) {
			listened := []int32{}
			for _, port := range p.Spec.Containers[0].Ports {
				listened = append(listened, port.ContainerPort)
			}
			if got, ok := admitted[component]; !ok || !slices.Equal(got, listened) {
				t.Errorf("%s listens on %v, but its policy admits %v", component, listened, got)
			}
			if component == "worker" && (len(listened) > 0) != (variant == "landing") {
				t.Errorf("a worker listens on %v", listened)
			}
		}
	})
}

// Selectors, volumes and probes refer to existing objects. Each component has a disruption budget and a grace period.
func TestReferencesBetweenObjects(t *testing.T) {
	testVariants(t, func(t *testing.T, _ string, all []runtime.Object) {
		found, budgets := podTemplates(all), 0
		claims := map[string]bool{}
		for _, o := range all {
			switch o := o.(type) {
			case *policyv1.PodDisruptionBudget:
				budgets++
				if p, ok := found[o.Spec.Selector.MatchLabels["app.kubernetes.io/component"]]; !ok || !hasLabels(p.Labels, o.Spec.Selector.MatchLabels) {
					t.Errorf("budget %s selects no pod", o.Name)
				}
			case *corev1.Service:
				if p, ok := found[o.Spec.Selector["app.kubernetes.io/component"]]; !ok || !hasLabels(p.Labels, o.Spec.Selector) {
					t.Errorf("service %s selects no pod", o.Name)
				}
			case *appsv1.StatefulSet:
				for _, c := range o.Spec.VolumeClaimTemplates {
					claims[c.Name] = true
				}
			}
		}
		if budgets != 2 {
			t.Errorf("%d budgets", budgets)
		}
		for component, p := range found {
			volumes := map[string]bool{}
			for _, v := range p.Spec.Volumes {
				volumes[v.Name] = true
			}
			for _, m := range p.Spec.Containers[0].VolumeMounts {
				if !volumes[m.Name] && (component != "worker" || !claims[m.Name]) {
					t.Errorf("%s mounts %s, which does not exist", component, m.Name)
				}
			}
			if *p.Spec.TerminationGracePeriodSeconds < 60 {
				t.Errorf("%s gets %d s to end", component, *p.Spec.TerminationGracePeriodSeconds)
			}
		}
		c := found["server"].Spec.Containers[0]
		if c.ReadinessProbe.HTTPGet.Path != "/readyz" || c.LivenessProbe.HTTPGet.Path != "/healthz" || c.StartupProbe.HTTPGet.Scheme != "HTTPS" {
			t.Errorf("probes %+v %+v %+v", c.ReadinessProbe, c.LivenessProbe, c.StartupProbe)
		}
	})
}

// hasLabels reports whether labels contain all wanted labels.
func hasLabels(labels, wanted map[string]string) bool {
	for k, v := range wanted {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// The arguments contain the complete URL of the database. No environment variable contains the password.
func TestDatabaseURL(t *testing.T) {
	for variant, want := range map[string]string{
		"defaults":      "postgres://decamp@postgresql/decamp",
		"full":          "postgres://decamp@db.example.com/decamp?connect_timeout=5&sslrootcert=/run/postgresql-ca/ca.crt",
		"cloudNativePG": "postgres://$(DATABASE_USER)@$(DATABASE_HOST):$(DATABASE_PORT)/$(DATABASE_NAME)?sslrootcert=/run/postgresql-ca/ca.crt",
	} {
		for component, p := range podTemplates(renderObjects(t, chartVariants[variant])) {
			c := p.Spec.Containers[0]
			if !slices.Contains(c.Args, "--db="+want) && !slices.Contains(c.Args, "--join="+want) {
				t.Errorf("%s, %s: %v", variant, component, c.Args)
			}
			for _, e := range c.Env {
				if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil && e.ValueFrom.SecretKeyRef.Key == "password" {
					t.Errorf("%s, %s: the variable %s contains the password", variant, component, e.Name)
				}
			}
		}
	}
}

// The chart rejects invalid values with a reason.
func TestBadValuesAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"workers: {autoscaling: {enabled: true}}":               "requires workers.images.existingClaim",
		"workers: {landing: {enabled: true}}":                   "workers.landing.hosts is required",
		"database: {url: ''}":                                   "database.url or database.cloudNativePG is required",
		"database: {url: 'postgres://decamp:secret@db/decamp'}": "url",
		"replicas: 3":             "replicas",
		"workers: {vms: 0}":       "vms",
		"secrets: {fleetKey: ''}": "fleetKey",
	} {
		var v map[string]any
		must(t, yamlvalues.Unmarshal([]byte(text), &v))
		if _, err := Render(filepath.Join(root, ChartFolder), v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// The committed manifests match the chart.
func TestManifestsAreCurrent(t *testing.T) {
	file := filepath.Join(root, ManifestFile)
	want, err := Manifest(filepath.Join(root, ChartFolder))
	must(t, err)
	got, err := os.ReadFile(file)
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not current: go run -C test/packaging ./render", ManifestFile)
	}
	if n := len(decodeObjects(t, got)); n < 6 {
		t.Errorf("%d objects", n)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
