{{- /* Puts .values.models into a RayService's spec: applications and worker groups. Writes nothing. */ -}}
{{- define "brimful.models" -}}
{{- $spec := .spec -}}
{{- with .values.models }}
{{- $serve := fromYaml $spec.serveConfigV2 -}}
{{- $groups := $spec.rayClusterConfig.workerGroupSpecs -}}
{{- if and (gt (len .) 1) (gt (len $groups) 1) }}
{{- fail "models: this overlay has worker groups of its own for one model; take overlay base" -}}
{{- end }}
{{- $first := first $serve.applications -}}
{{- $applications := list -}}
{{- $workers := list -}}
{{- range $model := . }}
{{- $applications = append $applications (include "brimful.application" (dict "first" $first "model" $model) | fromYaml) -}}
{{- $workers = concat $workers (include "brimful.workers" (dict "groups" $groups "model" $model) | fromYamlArray) -}}
{{- end }}
{{- range $application := $serve.applications }}
{{- if and (eq $application.import_path "serve_app.anchor:build") (first $.values.models).replicas }}{{ $_ := set $application.args "workers" (int (first $.values.models).replicas.min) }}{{ end -}}
{{- if ne $application.import_path $first.import_path }}{{ $applications = append $applications $application }}{{ end -}}
{{- end }}
{{- $_ := set $serve "applications" $applications -}}
{{- $_ := set $spec "serveConfigV2" (toYaml $serve) -}}
{{- $_ := set $spec.rayClusterConfig "workerGroupSpecs" $workers -}}
{{- end }}
{{- end }}

{{- /* .first with what .model says, as YAML. */ -}}
{{- define "brimful.application" -}}
{{- $application := deepCopy .first -}}
{{- $entry := first $application.args.llm_configs -}}
{{- with .model }}
{{- with .name }}{{ $_ := set $application "name" . }}{{ end -}}
{{- with .route }}{{ $_ := set $application "route_prefix" . }}{{ end -}}
{{- with .id }}{{ $_ := set $entry.model_loading_config "model_id" . }}{{ end -}}
{{- with .source }}{{ $_ := set $entry.model_loading_config "model_source" . }}{{ end -}}
{{- with .cards }}{{ if or (gt (int .) 1) (hasKey $entry.engine_kwargs "tensor_parallel_size") }}{{ $_ := set $entry.engine_kwargs "tensor_parallel_size" (int .) }}{{ end }}{{ end -}}
{{- with .sla }}{{ $_ := set $entry.batching "sla" (mergeOverwrite (deepCopy ($entry.batching.sla | default dict)) .) }}{{ end -}}
{{- with .replicas }}
{{- $counts := dict "min_replicas" (int .min) "max_replicas" (int .max) -}}
{{- $deployment := $entry.deployment_config -}}
{{- $_ := unset $deployment "num_replicas" -}}
{{- $_ := set $deployment "autoscaling_config" (mergeOverwrite ($deployment.autoscaling_config | default dict) $counts) -}}
{{- end }}
{{- with .entry }}{{ $_ := mergeOverwrite $entry (deepCopy .) }}{{ end -}}
{{- end }}
{{- $_ := set $application.args "llm_configs" (list $entry) -}}
{{- toYaml $application }}
{{- end }}

{{- /* .groups with what .model says, as a YAML list. The first of several holds the replicas that
       there are at least, the last what comes and goes (overlay spot). */ -}}
{{- define "brimful.workers" -}}
{{- $groups := deepCopy .groups -}}
{{- $last := sub (len $groups) 1 | int -}}
{{- $model := .model -}}
{{- range $index, $group := $groups }}
{{- $container := first $group.template.spec.containers -}}
{{- with $model.replicas }}
{{- if gt (int .min) (int .max) }}
{{- fail (printf "models: replicas.min: %d is not allowed: replicas.max is %d" (int .min) (int .max)) -}}
{{- end }}
{{- if and (gt $last 0) (lt (int .min) 1) }}
{{- fail "models: replicas.min: 0 is not allowed: this overlay has so many lasting workers, at least 1" -}}
{{- end }}
{{- $min := ternary (int .min) 0 (eq $index 0) -}}
{{- $max := int .max -}}
{{- if gt $last 0 }}{{ $max = ternary (int .min) (sub .max .min | int) (eq $index 0) }}{{ end -}}
{{- $_ := set $group "minReplicas" $min -}}
{{- $_ := set $group "replicas" $min -}}
{{- $_ := set $group "maxReplicas" $max -}}
{{- end }}
{{- with $model.cards }}
{{- if not (hasKey $container.resources.limits "nvidia.com/gpu") }}
{{- fail (printf "models: cards: %d is not allowed: workers of this overlay have none" (int .)) -}}
{{- end }}
{{- range list "requests" "limits" }}
{{- $_ := set (index $container.resources .) "nvidia.com/gpu" (toString (int $model.cards)) -}}
{{- end }}
{{- end }}
{{- with $model.workers }}{{ $_ := mergeOverwrite $group (deepCopy .) }}{{ end -}}
{{- with $model.container }}{{ $_ := mergeOverwrite $container (deepCopy .) }}{{ end -}}
{{- end }}
{{- toYaml $groups }}
{{- end }}

{{- /* Sets .values.image in each pod's Ray container, or its twin without a card, whose tag ends in
-cpu, if the overlay has that one. Writes nothing. */ -}}
{{- define "brimful.image" -}}
{{- range $group := prepend .cluster.workerGroupSpecs .cluster.headGroupSpec }}
{{- $container := first $group.template.spec.containers -}}
{{- $twin := and (hasSuffix "-cpu" $container.image) (not (hasSuffix "-cpu" $.values.image)) -}}
{{- $_ := set $container "image" (print $.values.image (ternary "-cpu" "" $twin)) -}}
{{- end }}
{{- end }}
