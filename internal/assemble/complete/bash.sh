
# The functions below replace those above. A value of --to has several characters : and =, and a user quotes
# the characters ? and & in it.
__decamp_handle_special_char()
{
    # called for : and for =, and handles both in the first call
    [[ $2 == : ]] || return
    if [[ -n ${quote} ]]; then # readline completes the text after the quote
        COMPREPLY=("${COMPREPLY[@]//\\/}")
        # a second word keeps readline from closing the quote after the name of a parameter
        [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[=:/] ]] && COMPREPLY+=("${COMPREPLY[0]}...")
        return
    fi
    local breaks=${COMP_WORDBREAKS//[^:=]/} i
    [[ -n ${breaks} ]] || return
    local typed=${cur%"${cur##*[${breaks}]}"} # readline completes the text after the last break
    for i in "${!COMPREPLY[@]}"; do
        COMPREPLY[i]=${COMPREPLY[i]#"${typed}"}
        COMPREPLY[i]=${COMPREPLY[i]#"$(printf %q "${typed}")"}
    done
}

__start_decamp()
{
    local cur prev words cword split out directive quote=
    COMPREPLY=()
    if declare -F _init_completion >/dev/null 2>&1; then
        _init_completion -n =: || return
    else
        __decamp_init_completion -n =: || return
    fi
    words=("${words[@]:0:cword+1}")
    if [[ ${cur} == [\'\"]?* ]]; then
        quote=${cur:0:1} cur=${cur:1}
        words[cword]+=${quote}
    else
        cur=${cur//\\/}
    fi
    __decamp_get_completion_results
    __decamp_process_completion_results
}
