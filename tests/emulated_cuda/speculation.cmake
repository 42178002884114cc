# generate with guesses gives the tokens that it gives without them: each draft as a decode, and all of a request's as
# one target_verify batch.
#   cmake -DPROGRAM=attune -DMODEL=folder -DBACKEND=name -P speculation.cmake
function(generate out)
  execute_process(COMMAND ${PROGRAM} generate --device cuda:0 --attention-backend ${BACKEND} --model ${MODEL} --page-size 16
                          --tokens 5,6,7,8,9,5,6,7,8,9,5,6,7 --max-new-tokens 24 ${ARGN}
                  OUTPUT_VARIABLE tokens ERROR_VARIABLE log RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "generate ${ARGN}: ${log}")
  endif()
  if(ARGN AND NOT log MATCHES "speculation [0-9]+ of [1-9][0-9]* drafts")
    message(FATAL_ERROR "generate ${ARGN} guessed nothing: ${log}")
  endif()
  set(${out} "${tokens}" PARENT_SCOPE)
endfunction()

generate(plain)
foreach(how exact together)
  generate(guessed --speculate ngram --verify-drafts ${how})
  if(NOT guessed STREQUAL plain)
    message(FATAL_ERROR "${how}: ${guessed} instead of ${plain}")
  endif()
endforeach()
